// The workbook "Convoy": backlog, outcomes, fan-out lag, cost drivers.

@description('Region.')
param location string

@description('Tags.')
param tags { *: string }

@description('Workspace whose tables the queries read.')
param workspaceId string

@description('Service Bus namespace whose metrics are shown.')
param namespaceId string

@description('Cosmos DB account whose metrics are shown.')
param cosmosAccountId string

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, 'convoy')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Convoy'
    category: 'workbook'
    version: 'Notebook/1.0'
    sourceId: workspaceId
    serializedData: replace(
      replace(
        replace(loadTextContent('../workbook.json'), '{{workspaceId}}', workspaceId),
        '{{namespaceId}}',
        namespaceId
      ),
      '{{cosmosAccountId}}',
      cosmosAccountId
    )
  }
}
