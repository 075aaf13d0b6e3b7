// What the person who deploys may do, so that the app and the operators' commands run from their machine.

@description('Object id of the person or group.')
param principalId string

@description('What the id stands for; a wrong one is refused (UnmatchedPrincipalType).')
@allowed(['User', 'Group', 'ServicePrincipal'])
param principalType string

@description('Service Bus namespace.')
param namespaceName string

@description('Cosmos DB account.')
param cosmosAccountName string

@description('Database within the account.')
param databaseName string

var serviceBusDataSender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
var serviceBusDataReceiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
var cosmosDataContributor = '00000000-0000-0000-0000-000000000002'

resource namespace 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = {
  name: namespaceName
}

resource account 'Microsoft.DocumentDB/databaseAccounts@2026-03-15' existing = {
  name: cosmosAccountName
}

resource sender 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, principalId, serviceBusDataSender)
  scope: namespace
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', serviceBusDataSender)
  }
}

resource receiver 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(namespace.id, principalId, serviceBusDataReceiver)
  scope: namespace
  properties: {
    principalId: principalId
    principalType: principalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', serviceBusDataReceiver)
  }
}

resource dataContributor 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2026-03-15' = {
  parent: account
  name: guid(account.id, principalId, cosmosDataContributor)
  properties: {
    principalId: principalId
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${cosmosDataContributor}'
    scope: '${account.id}/dbs/${databaseName}'
  }
}
