// Service Bus: one session-enabled queue per role. Names carry a generation, since requiresSession,
// requiresDuplicateDetection and enablePartitioning can never be changed on a queue that exists.

@description('Name of the namespace.')
@minLength(6)
@maxLength(50)
param name string

@description('Region.')
param location string

@description('Tags.')
param tags { *: string }

@description('Standard or Premium. Basic has neither sessions nor duplicate detection.')
@allowed(['Standard', 'Premium'])
param sku string

@description('Messaging units, Premium only.')
@allowed([1, 2, 4, 8, 16])
param messagingUnits int

@description('Second region for geo-replication, Premium only; empty for none.')
param secondaryLocation string

@description('How far the second region may lag behind, in seconds; 0 makes replication synchronous.')
@minValue(0)
param maxReplicationLagSeconds int

@description('Generation of the queues, the number at the end of their names.')
@minValue(1)
param generation int

@description('Size limit of each queue.')
@allowed([1024, 2048, 3072, 4096, 5120])
param queueSizeMegabytes int

@description('Whether public networks may reach the namespace; Premium only, a Standard namespace is always public.')
param isPublic bool

var isPremium = sku == 'Premium'
var isReplicated = isPremium && !empty(secondaryLocation)

resource namespace 'Microsoft.ServiceBus/namespaces@2026-01-01' = {
  name: name
  location: location
  tags: tags
  sku: {
    name: sku
    tier: sku
    capacity: isPremium ? messagingUnits : null
  }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: isPremium && !isPublic ? 'Disabled' : 'Enabled'
    // One partition: the relay packs messages of several sessions into one AMQP batch.
    premiumMessagingPartitions: isPremium ? 1 : null
    geoDataReplication: isReplicated
      ? {
          maxReplicationLagDurationInSeconds: maxReplicationLagSeconds
          locations: [
            {
              locationName: location
              roleType: 'Primary'
            }
            {
              locationName: secondaryLocation
              roleType: 'Secondary'
            }
          ]
        }
      : null
  }
}

var roles = [
  {
    name: 'orders'
    timeToLive: 'P14D'
  }
  {
    name: 'ledger'
    timeToLive: 'P14D'
  }
  {
    name: 'ledger-entries'
    timeToLive: 'P14D'
  }
  {
    name: 'quarantine'
    timeToLive: 'P30D'
  }
]

resource queues 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' = [
  for role in roles: {
    parent: namespace
    name: '${role.name}-${generation}'
    properties: {
      requiresSession: true
      requiresDuplicateDetection: true
      duplicateDetectionHistoryTimeWindow: 'PT1M'
      enablePartitioning: false
      lockDuration: 'PT1M'
      maxDeliveryCount: 1000
      defaultMessageTimeToLive: role.timeToLive
      deadLetteringOnMessageExpiration: true
      maxSizeInMegabytes: queueSizeMegabytes
    }
  }
]

@description('Name of the namespace.')
output name string = namespace.name

@description('Resource id of the namespace.')
output id string = namespace.id

@description('Host name alone: no scheme, no port, no slash.')
output hostName string = '${namespace.name}.servicebus.windows.net'

@description('Queue of the role orders.')
output orders string = queues[0].name

@description('Queue of the role ledger.')
output ledger string = queues[1].name

@description('Queue of the role ledger-entries.')
output ledgerEntries string = queues[2].name

@description('Queue of the role quarantine.')
output quarantine string = queues[3].name
