// The JavaScript client (@azure/service-bus over rhea) against the broker; exits with 0 when every check holds.
// Run by test_javascript_client.py with the broker's port.
"use strict";
const assert = require("node:assert/strict");
const { ServiceBusClient } = require("@azure/service-bus");

const connect = (key, more = {}) =>
  new ServiceBusClient(
    `Endpoint=sb://localhost:${process.argv[2]};SharedAccessKeyName=RootManageSharedAccessKey;` +
      `SharedAccessKey=${key};UseDevelopmentEmulator=true;`,
    { retryOptions: { maxRetries: 0, timeoutInMs: 3000, ...more } },
  );
const codeOf = (action) => action().then(() => "no error", (error) => error.code);
const soon = { maxWaitTimeInMs: 1000 };

async function sessions(client) {
  const sender = client.createSender("orders");
  const properties = { x: 1, y: "z", d: true };
  await sender.sendMessages([
    { body: { a: 1 }, sessionId: "A", messageId: "1", applicationProperties: properties },
    { body: "two", sessionId: "A", messageId: "2" },
  ]);
  const receiver = await client.acceptNextSession("orders");
  assert.equal(receiver.sessionId, "A");
  const [first, second] = await receiver.receiveMessages(2, soon);
  assert.deepEqual([first.body, first.applicationProperties, first.deliveryCount], [{ a: 1 }, properties, 0]);
  await receiver.abandonMessage(first, { why: "again" });
  await receiver.completeMessage(second);
  const [again] = await receiver.receiveMessages(2, soon);
  assert.deepEqual([again.messageId, again.deliveryCount], ["1", 1]);
  await receiver.deadLetterMessage(again, { deadLetterReason: "R", deadLetterErrorDescription: "D", extra: 5 });
  await receiver.setSessionState({ step: 1 });
  assert.deepEqual(await receiver.getSessionState(), { step: 1 });
  await receiver.setSessionState(null);
  assert.ok((await receiver.renewSessionLock()) > new Date());
  assert.equal(await codeOf(() => client.acceptSession("orders", "A")), "SessionCannotBeLocked");
  await receiver.close();
  const deadLetters = client.createReceiver("orders", { subQueueType: "deadLetter" });
  const [buried] = await deadLetters.receiveMessages(5, soon);
  assert.deepEqual([buried.deadLetterReason, buried.deadLetterErrorDescription], ["R", "D"]);
  assert.deepEqual([buried.applicationProperties.why, buried.applicationProperties.extra], ["again", 5]);
  await deadLetters.completeMessage(buried);
  assert.equal(await codeOf(() => client.acceptNextSession("orders")), "ServiceTimeout");
}

async function plain(client) {
  const sender = client.createSender("plain");
  const receiver = client.createReceiver("plain");
  const [number] = await sender.scheduleMessages({ body: "late" }, new Date(Date.now() + 60000));
  await sender.cancelScheduledMessages(number);
  await sender.sendMessages([{ body: "1" }, { body: "2" }, { body: "3" }]);
  const [first] = await receiver.receiveMessages(1, soon);
  await receiver.deferMessage(first);
  const [deferred] = await receiver.receiveDeferredMessages(first.sequenceNumber);
  assert.deepEqual([deferred.body, deferred.state], ["1", "deferred"]);
  await receiver.completeMessage(deferred);
  assert.deepEqual((await receiver.peekMessages(5)).map((message) => message.body), ["2", "3"]);
  const got = [];
  await new Promise((resolve, reject) => {
    const subscription = receiver.subscribe({
      processMessage: async (message) => {
        if (got.push(message.body) === 2) subscription.close().then(resolve, reject);
      },
      processError: async ({ error }) => reject(error),
    });
  });
  assert.deepEqual(got, ["2", "3"]);
}

async function refusals(client) {
  const send = (queue, message) => codeOf(() => client.createSender(queue).sendMessages(message));
  assert.equal(await send("nowhere", { body: 1 }), "MessagingEntityNotFound");
  assert.equal(await send("plain", { body: Buffer.alloc(300000) }), "MessageSizeExceeded");
  await assert.rejects(client.createSender("orders").sendMessages({ body: 1 }), /SessionId was not set/);
  await assert.rejects(client.createReceiver("orders").receiveMessages(1, soon), /non-sessionful message receiver/);
  const stranger = connect("d3Jvbmc=");
  assert.equal(await codeOf(() => stranger.createSender("plain").sendMessages({ body: 1 })), "UnauthorizedAccess");
  await stranger.close();
}

(async () => {
  const client = connect("SAS_KEY_VALUE");
  await Promise.all([sessions(client), plain(client), refusals(client)]);
  await client.close();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
