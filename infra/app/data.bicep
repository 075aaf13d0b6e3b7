// Cosmos DB for NoSQL: one account, one write region, one database, a container per role.

@description('Name of the account.')
@minLength(3)
@maxLength(44)
param name string

@description('Region.')
param location string

@description('Tags.')
param tags { *: string }

@description('Billing: serverless per request, or autoscale per hour.')
@allowed(['serverless', 'autoscale'])
param throughputMode string

@description('Upper limit of each container in request units per second, autoscale only.')
@minValue(1000)
param autoscaleMaxThroughput int

@description('Whether the region is spread over its availability zones; fixed when the account is created.')
param zoneRedundant bool

@description('Backup: Periodic, or continuous with 7 or 30 days.')
@allowed(['Periodic', 'Continuous7Days', 'Continuous30Days'])
param backup string

@description('Whether public networks may reach the account.')
param isPublic bool

resource account 'Microsoft.DocumentDB/databaseAccounts@2026-03-15' = {
  name: name
  location: location
  tags: tags
  kind: 'GlobalDocumentDB'
  properties: {
    databaseAccountOfferType: 'Standard'
    disableLocalAuth: true
    minimalTlsVersion: 'Tls12'
    publicNetworkAccess: isPublic ? 'Enabled' : 'Disabled'
    // A permanent verdict rests on a read, often by another worker than the one that wrote. Reads cost twice the
    // request units (1 KB: 2 instead of 1); writes cost the same.
    consistencyPolicy: {
      defaultConsistencyLevel: 'Strong'
    }
    // A second write region would let two regions accept one id: the create is the claim.
    enableMultipleWriteLocations: false
    enableAutomaticFailover: false
    locations: [
      {
        locationName: location
        failoverPriority: 0
        isZoneRedundant: zoneRedundant
      }
    ]
    capabilities: throughputMode == 'serverless'
      ? [
          {
            name: 'EnableServerless'
          }
        ]
      : []
    backupPolicy: backup == 'Periodic'
      ? null
      : {
          type: 'Continuous'
          continuousModeProperties: {
            tier: backup
          }
        }
  }
}

resource database 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2026-03-15' = {
  parent: account
  name: 'convoy'
  properties: {
    resource: {
      id: 'convoy'
    }
  }
}

// Only what the app filters by is indexed, beside id and _ts, which always are. An order of ten lines with everything
// indexed costs about 20 request units more per write than with these three paths.
var recordPaths = ['/type/?', '/record/status/?', '/record/effect/status/?']
var containerDefinitions = [
  {
    name: 'orders'
    partitionKey: '/orderId'
    includedPaths: recordPaths
  }
  {
    name: 'ledgers'
    partitionKey: '/ledgerId'
    includedPaths: recordPaths
  }
  {
    name: 'ledger-entries'
    partitionKey: '/orderId'
    includedPaths: ['/type/?', '/status/?', '/stream/?', '/sequence/?', '/position/?']
  }
  {
    name: 'operations'
    partitionKey: '/sessionId'
    includedPaths: ['/type/?', '/status/?']
  }
]

resource containers 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2026-03-15' = [
  for definition in containerDefinitions: {
    parent: database
    name: definition.name
    properties: {
      resource: {
        id: definition.name
        partitionKey: {
          paths: [definition.partitionKey]
          kind: 'Hash'
          version: 2
        }
        // On, but nothing expires unless its document says so: without this a document's own ttl does nothing.
        defaultTtl: -1
        indexingPolicy: {
          indexingMode: 'consistent'
          automatic: true
          includedPaths: [
            for path in definition.includedPaths: {
              path: path
            }
          ]
          excludedPaths: [
            {
              path: '/*'
            }
          ]
        }
      }
      options: {
        autoscaleSettings: throughputMode == 'autoscale'
          ? {
              maxThroughput: autoscaleMaxThroughput
            }
          : null
      }
    }
  }
]

@description('Name of the account.')
output name string = account.name

@description('Resource id of the account.')
output id string = account.id

@description('Endpoint of the account.')
output endpoint string = account.properties.documentEndpoint

@description('Name of the database.')
output database string = database.name

@description('Container of orders and their commands.')
output orders string = containers[0].name

@description('Container of ledger batches.')
output ledgers string = containers[1].name

@description('Container of ledger entries.')
output ledgerEntries string = containers[2].name

@description('Container of the audit of operations, and of notes of attempts.')
output operations string = containers[3].name
