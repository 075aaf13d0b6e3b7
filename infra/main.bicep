// Everything that the app needs, in one resource group. `azd up` deploys it; docs/operations.md explains the numbers.
targetScope = 'subscription'

@description('Name of the environment; resource names are made from it.')
@minLength(1)
@maxLength(64)
param environmentName string

@description('Region of all resources. It must offer Flex Consumption (az functionapp list-flexconsumption-locations).')
@minLength(1)
@metadata({ azd: { type: 'location' } })
param location string

@description('Object id of who deploys; gets data roles on bus and database. Empty for nobody.')
param principalId string = ''

@description('What principalId stands for. A pipeline is a ServicePrincipal.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param principalType string = 'User'

@description('Whether principalId gets data roles, so that the app and the operators\' commands run from there. Off in pipelines.')
param grantDataRoles bool = true

@description('Generation of the queues. A queue\'s sessions, duplicate detection and partitioning can never be changed: a change of them needs new queues, so a new number, and the move that docs/operations.md describes.')
@minValue(1)
@maxValue(999)
param queueGeneration int = 1

@description('Tier of Service Bus. Standard: about 10 USD a month with 13 million operations, then 0.80 USD a million; 256 KiB a message. Premium: about 0.93 USD an hour (680 USD a month) per messaging unit and no price per operation; private endpoints, 1 MiB a message. Both spread over zones at no cost where the region has them. Basic has no sessions.')
@allowed(['Standard', 'Premium'])
param serviceBusSku string = 'Standard'

@description('Messaging units, Premium only: each costs about 680 USD a month. Scale up at 70 % CPU.')
@allowed([1, 2, 4, 8, 16])
param serviceBusMessagingUnits int = 1

@description('Second region for Service Bus geo-replication, Premium only: doubles the price of the messaging units and adds the traffic between regions. Empty for none.')
param serviceBusSecondaryLocation string = ''

@description('How many seconds the second region may lag behind. What it lags is lost in a forced failover; 0 replicates synchronously and slows every send.')
@minValue(0)
param serviceBusMaxReplicationLagSeconds int = 300

@description('Size limit of each queue in MB; no price. Sends fail when it is reached.')
@allowed([1024, 2048, 3072, 4096, 5120])
param queueSizeMegabytes int = 5120

@description('Whether the app gets Azure Service Bus Data Owner on the queues that it receives from. The platform then scales by queue length; without it, step by step. No price.')
param serviceBusManageForScaling bool = false

@description('Billing of Cosmos DB, fixed when the account is created. serverless: about 0.25 USD a million request units, at most 5,000 a second per container. autoscale: about 8.80 USD a month per container and 1,000 request units a second at rest (10 %), 88 USD at full load.')
@allowed(['serverless', 'autoscale'])
param cosmosThroughputMode string = 'serverless'

@description('Upper limit of each of the four containers in request units per second, autoscale only.')
@minValue(1000)
@maxValue(1000000)
param cosmosAutoscaleMaxThroughput int = 1000

@description('Backup of Cosmos DB. Periodic: two copies, eight hours, free. Continuous7Days: to any point in time, free. Continuous30Days: about 0.20 USD a GB and month. A restore costs about 0.15 USD a GB. There is no way back from continuous.')
@allowed(['Periodic', 'Continuous7Days', 'Continuous30Days'])
param cosmosBackup string = 'Continuous7Days'

@description('Whether Cosmos DB, storage and the app are spread over availability zones; fixed for Cosmos DB when the account is created. Cosmos DB: about 25 % more (autoscale: nothing). Storage: about 25 % more. App: at least two instances of each function group are always ready and billed.')
param zoneRedundant bool = false

@description('Python version. 3.11 to 3.13 are what Flex Consumption and requirements.txt support.')
@allowed(['3.11', '3.12', '3.13'])
param pythonVersion string = '3.12'

@description('Memory of an instance in MB: 512 (1/4 core), 2048 (1 core) or 4096 (2 cores). About 0.000026 USD per GB and second while active.')
@allowed([512, 2048, 4096])
param instanceMemoryMB int = 2048

@description('Upper limit of on-demand instances per function group. Sessions in parallel = this times maxConcurrentSessions (16). It bounds the cost: each is billed only while active. Below 40 only in some regions.')
@minValue(1)
@maxValue(1000)
param maximumInstanceCount int = 40

@description('Instances of process_order that are always ready: about 21 USD a month each at 2048 MB, and no cold start.')
@minValue(0)
param alwaysReadyOrders int = 0

@description('Instances of fan_out_ledger that are always ready; same price.')
@minValue(0)
param alwaysReadyLedger int = 0

@description('Instances of apply_entry that are always ready; same price.')
@minValue(0)
param alwaysReadyEntries int = 0

@description('Instances of the HTTP functions that are always ready; same price.')
@minValue(0)
param alwaysReadyHttp int = 0

@description('Whether bus (Premium only), database and storage are reached through private endpoints in a virtual network and no longer from outside. About 7.30 USD a month per endpoint (two, Premium: three), 0.50 USD per DNS zone, 0.01 USD a GB.')
param vnetEnabled bool = false

@description('Address space of the network.')
param vnetAddressPrefix string = '10.20.0.0/16'

@description('Client id of an Entra application that callers of the HTTP functions must have a token for, beside the function key. Empty for keys alone. No price.')
param entraClientId string = ''

@description('Address of the payment provider; empty leaves payments out.')
param paymentsUrl string = ''

@description('Entra scope of the token for the payment provider; empty for no token.')
param paymentsScope string = ''

@description('What an unknown outcome of a payment leads to: retry, if the provider knows Idempotency-Key, else park.')
@allowed(['retry', 'park'])
param paymentsUnknownOutcome string = 'retry'

@description('Whether log lines hold business keys as they are, or their fingerprints.')
@allowed(['plain', 'fingerprint'])
param logKeys string = 'plain'

@description('Days that logs are kept: 31 are free, then about 0.10 USD a GB and month.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

@description('Gigabytes of logs a day, after which nothing more is taken in and the alerts on logs are blind; about 2.30 USD a GB. -1 for no limit.')
param logDailyCapGigabytes int = -1

@description('Whether each database request is logged: about 1 KB each, so 2.30 USD a million.')
param logDatabaseRequests bool = false

@description('Who is told of alerts and budget by mail. Empty for nobody.')
param alertEmail string = ''

@description('Where the runbooks are; alerts name them. A fork sets the address of its own copy.')
param runbook string = 'docs/operations.md'

@description('Budget a month, in the currency of the subscription; 0 for none. It only tells, by alertEmail. No price.')
@minValue(0)
param budgetAmount int = 0

@description('First month of the budget, yyyy-MM-01; can not be changed later. Needed for a budget.')
param budgetStartDate string = ''

var abbreviations = loadJsonContent('abbreviations.json')
var token = uniqueString(subscription().id, environmentName, location)
var tags = {
  'azd-env-name': environmentName
}
var gapAlarmSeconds = 900
var recordTtlSeconds = 5184000
var replayHorizonSeconds = 2592000

resource group 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: '${abbreviations.resourceGroup}${environmentName}'
  location: location
  tags: tags
}

module identity 'app/identity.bicep' = {
  scope: group
  params: {
    name: '${abbreviations.managedIdentity}${token}'
    location: location
    tags: tags
  }
}

module monitoring 'app/monitoring.bicep' = {
  scope: group
  params: {
    workspaceName: '${abbreviations.workspace}${token}'
    componentName: '${abbreviations.insightsComponent}${token}'
    location: location
    tags: tags
    retentionDays: logRetentionDays
    dailyCapGigabytes: logDailyCapGigabytes
  }
}

module storage 'app/storage.bicep' = {
  scope: group
  params: {
    name: '${abbreviations.storageAccount}${token}'
    location: location
    tags: tags
    zoneRedundant: zoneRedundant
    isPublic: !vnetEnabled
  }
}

module messaging 'app/messaging.bicep' = {
  scope: group
  params: {
    name: '${abbreviations.serviceBusNamespace}${token}'
    location: location
    tags: tags
    sku: serviceBusSku
    messagingUnits: serviceBusMessagingUnits
    secondaryLocation: serviceBusSecondaryLocation
    maxReplicationLagSeconds: serviceBusMaxReplicationLagSeconds
    generation: queueGeneration
    queueSizeMegabytes: queueSizeMegabytes
    isPublic: !vnetEnabled
  }
}

module data 'app/data.bicep' = {
  scope: group
  params: {
    name: '${abbreviations.cosmosAccount}${token}'
    location: location
    tags: tags
    throughputMode: cosmosThroughputMode
    autoscaleMaxThroughput: cosmosAutoscaleMaxThroughput
    zoneRedundant: zoneRedundant
    backup: cosmosBackup
    isPublic: !vnetEnabled
  }
}

module network 'app/network.bicep' = if (vnetEnabled) {
  scope: group
  params: {
    name: '${abbreviations.virtualNetwork}${token}'
    location: location
    tags: tags
    addressPrefix: vnetAddressPrefix
    endpointPrefix: '${abbreviations.privateEndpoint}${token}-'
    cosmosAccountId: data.outputs.id
    storageAccountId: storage.outputs.id
    serviceBusId: serviceBusSku == 'Premium' ? messaging.outputs.id : ''
  }
}

module roles 'app/roles.bicep' = {
  scope: group
  params: {
    principalId: identity.outputs.principalId
    namespaceName: messaging.outputs.name
    receivesFrom: [messaging.outputs.orders, messaging.outputs.ledger, messaging.outputs.ledgerEntries]
    sendsTo: [messaging.outputs.orders, messaging.outputs.ledgerEntries, messaging.outputs.quarantine]
    manageForScaling: serviceBusManageForScaling
    cosmosAccountName: data.outputs.name
    databaseName: data.outputs.database
    storageAccountName: storage.outputs.name
    componentName: monitoring.outputs.componentName
  }
}

module developerRoles 'app/developer-roles.bicep' = if (grantDataRoles && !empty(principalId)) {
  scope: group
  params: {
    principalId: principalId
    principalType: principalType
    namespaceName: messaging.outputs.name
    cosmosAccountName: data.outputs.name
    databaseName: data.outputs.database
  }
}

module functionApp 'app/function.bicep' = {
  scope: group
  params: {
    name: '${abbreviations.functionApp}${token}'
    planName: '${abbreviations.functionPlan}${token}'
    location: location
    tags: tags
    serviceName: 'app'
    pythonVersion: pythonVersion
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
    alwaysReady: [
      {
        name: 'http'
        instanceCount: alwaysReadyHttp
      }
      {
        name: 'function:process_order'
        instanceCount: alwaysReadyOrders
      }
      {
        name: 'function:fan_out_ledger'
        instanceCount: alwaysReadyLedger
      }
      {
        name: 'function:apply_entry'
        instanceCount: alwaysReadyEntries
      }
    ]
    zoneRedundant: zoneRedundant
    identityId: identity.outputs.id
    identityClientId: identity.outputs.clientId
    subnetId: network.?outputs.appSubnetId
    storageAccountName: storage.outputs.name
    packagesUrl: storage.outputs.packagesUrl
    applicationInsightsConnectionString: monitoring.outputs.connectionString
    serviceBusHostName: messaging.outputs.hostName
    cosmosEndpoint: data.outputs.endpoint
    entraClientId: entraClientId
    settings: {
      ORDERS_QUEUE: messaging.outputs.orders
      LEDGER_QUEUE: messaging.outputs.ledger
      LEDGER_ENTRIES_QUEUE: messaging.outputs.ledgerEntries
      QUARANTINE_QUEUE: messaging.outputs.quarantine
      COSMOS_DATABASE: data.outputs.database
      ORDERS_CONTAINER: data.outputs.orders
      LEDGERS_CONTAINER: data.outputs.ledgers
      LEDGER_ENTRIES_CONTAINER: data.outputs.ledgerEntries
      OPERATIONS_CONTAINER: data.outputs.operations
      POISON_AFTER_DELIVERIES: '5'
      TRANSIENT_BUDGET_SECONDS: '60'
      CLAIM_LEASE_SECONDS: '90'
      RECORD_TTL_SECONDS: string(recordTtlSeconds)
      REPLAY_HORIZON_SECONDS: string(replayHorizonSeconds)
      REPLAY_MAX: '5'
      SWEEP_SCHEDULE: '0 * * * * *'
      SWEEP_GRACE_SECONDS: '120'
      HELD_MAX_PER_STREAM: '95'
      GAP_ALARM_SECONDS: string(gapAlarmSeconds)
      PAYMENTS_TIMEOUT_SECONDS: '10'
      PAYMENTS_UNKNOWN_OUTCOME: paymentsUnknownOutcome
      TELEMETRY_EXPORTER: 'azuremonitor'
      LOG_KEYS: logKeys
    }
    optionalSettings: {
      PAYMENTS_URL: paymentsUrl
      PAYMENTS_SCOPE: paymentsScope
    }
  }
  // Without its roles the app can neither fetch its package nor start.
  dependsOn: [roles]
}

module diagnostics 'app/diagnostics.bicep' = {
  scope: group
  params: {
    namespaceName: messaging.outputs.name
    cosmosAccountName: data.outputs.name
    functionAppName: functionApp.outputs.name
    workspaceId: monitoring.outputs.workspaceId
    logDatabaseRequests: logDatabaseRequests
  }
}

module alerts 'app/alerts.bicep' = {
  scope: group
  params: {
    location: location
    tags: tags
    actionGroupName: '${abbreviations.insightsActionGroup}${token}'
    email: alertEmail
    runbook: runbook
    workspaceId: monitoring.outputs.workspaceId
    namespaceId: messaging.outputs.id
    workingQueues: [messaging.outputs.orders, messaging.outputs.ledger, messaging.outputs.ledgerEntries]
    workingRoles: ['orders', 'ledger', 'ledger-entries']
    quarantineQueue: messaging.outputs.quarantine
    queueSizeMegabytes: queueSizeMegabytes
    cosmosAccountId: data.outputs.id
    gapAlarmSeconds: gapAlarmSeconds
    unfinishedAlarmSeconds: 900
    lagAlarmSeconds: 900
  }
}

module workbook 'app/workbook.bicep' = {
  scope: group
  params: {
    location: location
    tags: tags
    workspaceId: monitoring.outputs.workspaceId
    namespaceId: messaging.outputs.id
    cosmosAccountId: data.outputs.id
  }
}

module budget 'app/budget.bicep' = if (budgetAmount > 0 && !empty(budgetStartDate) && !empty(alertEmail)) {
  scope: group
  params: {
    name: '${abbreviations.authorizationBudget}${token}'
    amount: max(budgetAmount, 1)
    startDate: budgetStartDate
    contactEmails: [alertEmail]
  }
}

@description('Region.')
output AZURE_LOCATION string = location

@description('Tenant.')
output AZURE_TENANT_ID string = tenant().tenantId

@description('Resource group.')
output AZURE_RESOURCE_GROUP string = group.name

@description('Function app.')
output AZURE_FUNCTION_NAME string = functionApp.outputs.name

@description('Function app, under the name that azd derives from the service.')
output SERVICE_APP_NAME string = functionApp.outputs.name

@description('Address of the HTTP functions.')
output SERVICE_APP_ENDPOINT_URL string = functionApp.outputs.url

@description('Setting of the same name: host name of the namespace.')
output ServiceBusConnection__fullyQualifiedNamespace string = messaging.outputs.hostName

@description('Setting of the same name: endpoint of the account.')
output CosmosConnection__accountEndpoint string = data.outputs.endpoint

@description('Setting of the same name.')
output ORDERS_QUEUE string = messaging.outputs.orders

@description('Setting of the same name.')
output LEDGER_QUEUE string = messaging.outputs.ledger

@description('Setting of the same name.')
output LEDGER_ENTRIES_QUEUE string = messaging.outputs.ledgerEntries

@description('Setting of the same name.')
output QUARANTINE_QUEUE string = messaging.outputs.quarantine

@description('Setting of the same name.')
output COSMOS_DATABASE string = data.outputs.database
