// Log Analytics and Application Insights; telemetry is accepted from identities only.

@description('Name of the workspace.')
@minLength(4)
@maxLength(63)
param workspaceName string

@description('Name of the Application Insights component.')
param componentName string

@description('Region.')
param location string

@description('Tags.')
param tags { *: string }

@description('Days that logs are kept.')
@minValue(30)
@maxValue(730)
param retentionDays int

@description('Gigabytes a day after which nothing more is taken in until the next day; -1 for no limit.')
param dailyCapGigabytes int

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: retentionDays
    features: {
      disableLocalAuth: true
      enableLogAccessUsingOnlyResourcePermissions: true
    }
    workspaceCapping: {
      dailyQuotaGb: dailyCapGigabytes
    }
  }
}

resource component 'Microsoft.Insights/components@2020-02-02' = {
  name: componentName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
    publicNetworkAccessForIngestion: 'Enabled'
    publicNetworkAccessForQuery: 'Enabled'
  }
}

@description('Resource id of the workspace.')
output workspaceId string = workspace.id

@description('Name of the component.')
output componentName string = component.name

@description('Where telemetry is sent; it holds no key that would be accepted, since local authentication is off.')
output connectionString string = component.properties.ConnectionString
