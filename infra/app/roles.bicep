// What the app's identity may do, and nothing else: data-plane roles, queue by queue.

@description('Object id of the app\'s identity.')
param principalId string

@description('Service Bus namespace.')
param namespaceName string

@description('Queues that the app receives from.')
param receivesFrom string[]

@description('Queues that the app sends to.')
param sendsTo string[]

@description('Whether the app may manage the queues it receives from, so that the platform scales by their length.')
param manageForScaling bool

@description('Cosmos DB account.')
param cosmosAccountName string

@description('Database within the account.')
param databaseName string

@description('Storage account of the host.')
param storageAccountName string

@description('Application Insights component.')
param componentName string

var serviceBusDataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var serviceBusDataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var serviceBusDataOwner = '090c5cfd-751d-490a-894a-3ce6f1109419'
var storageBlobDataOwner = 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
var monitoringMetricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'
var cosmosDataContributor = '00000000-0000-0000-0000-000000000002'

resource namespace 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = {
  name: namespaceName
}

resource receivingQueues 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' existing = [
  for queue in receivesFrom: {
    parent: namespace
    name: queue
  }
]

resource sendingQueues 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' existing = [
  for queue in sendsTo: {
    parent: namespace
    name: queue
  }
]

resource account 'Microsoft.DocumentDB/databaseAccounts@2026-03-15' existing = {
  name: cosmosAccountName
}

resource storage 'Microsoft.Storage/storageAccounts@2026-04-01' existing = {
  name: storageAccountName
}

resource component 'Microsoft.Insights/components@2020-02-02' existing = {
  name: componentName
}

// Names rest on the principal's id: with the identity's name a recreated identity would fail to get its roles.
resource receivers 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (queue, i) in receivesFrom: {
    name: guid(receivingQueues[i].id, principalId, serviceBusDataReceiver)
    scope: receivingQueues[i]
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', serviceBusDataReceiver)
    }
  }
]

resource senders 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (queue, i) in sendsTo: {
    name: guid(sendingQueues[i].id, principalId, serviceBusDataSender)
    scope: sendingQueues[i]
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', serviceBusDataSender)
    }
  }
]

resource owners 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (queue, i) in receivesFrom: if (manageForScaling) {
    name: guid(receivingQueues[i].id, principalId, serviceBusDataOwner)
    scope: receivingQueues[i]
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', serviceBusDataOwner)
    }
  }
]

// Leases, function keys and the app's package.
resource blobOwner 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storage.id, principalId, storageBlobDataOwner)
  scope: storage
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageBlobDataOwner)
  }
}

resource metricsPublisher 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(component.id, principalId, monitoringMetricsPublisher)
  scope: component
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', monitoringMetricsPublisher)
  }
}

// The data plane of Cosmos DB has roles of its own: an ordinary role assignment would grant nothing here.
resource dataContributor 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2026-03-15' = {
  parent: account
  name: guid(account.id, principalId, cosmosDataContributor)
  properties: {
    principalId: principalId
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${cosmosDataContributor}'
    scope: '${account.id}/dbs/${databaseName}'
  }
}
