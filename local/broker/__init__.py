"""An embedded Service Bus: a pure state machine for queues behind an AMQP 1.0 front, standard library only."""
