// The function app on Flex Consumption. It runs as the user-assigned identity in everything that it connects to.

@description('Name of the app.')
@minLength(2)
@maxLength(60)
param name string

@description('Name of its plan; a Flex Consumption plan holds one app.')
param planName string

@description('Region.')
param location string

@description('Tags of all resources.')
param tags { *: string }

@description('Name of the service in azure.yaml, by which azd finds the app.')
param serviceName string

@description('Python version; must fit requirements.txt.')
@allowed(['3.11', '3.12', '3.13'])
param pythonVersion string

@description('Memory of an instance in MB.')
@allowed([512, 2048, 4096])
param instanceMemoryMB int

@description('On-demand instances per function group: each queue function is a group, the HTTP functions are one.')
@minValue(1)
@maxValue(1000)
param maximumInstanceCount int

@description('Instances that are always ready, by function group; groups with 0 are left out.')
param alwaysReady alwaysReadyGroup[]

@description('Whether instances are spread over zones; at least two per group are then always ready and billed.')
param zoneRedundant bool

@description('Resource id of the identity.')
param identityId string

@description('Client id of the identity.')
param identityClientId string

@description('Subnet for outgoing traffic; null for none.')
param subnetId string?

@description('Storage account of the host.')
param storageAccountName string

@description('Container for the app\'s package.')
param packagesUrl string

@description('App settings beside those that follow from identity and storage.')
param settings { *: string }

@description('Settings that are left out where they are empty.')
param optionalSettings { *: string }

@description('Application Insights, where telemetry is sent.')
param applicationInsightsConnectionString string

@description('Host name of the Service Bus namespace.')
param serviceBusHostName string

@description('Endpoint of the Cosmos DB account.')
param cosmosEndpoint string

@description('Client id of the Entra application that callers of the HTTP functions sign in to; empty for function keys alone.')
param entraClientId string

@description('One function group and its instances.')
type alwaysReadyGroup = {
  @description('`http`, or `function:<name>` for every other trigger.')
  name: string

  @description('Number of instances.')
  instanceCount: int
}

resource plan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

resource site 'Microsoft.Web/sites@2025-03-01' = {
  name: name
  location: location
  tags: union(tags, {
    'azd-service-name': serviceName
  })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    virtualNetworkSubnetId: subnetId
    siteConfig: {
      minTlsVersion: '1.2'
      scmMinTlsVersion: '1.2'
      http20Enabled: true
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: packagesUrl
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: filter(alwaysReady, group => group.instanceCount > 0)
      }
      runtime: {
        name: 'python'
        version: pythonVersion
      }
    }
  }
}

// Replaces all settings at each provision, and so resumes roles that were paused by AzureWebJobs.<function>.Disabled.
resource appSettings 'Microsoft.Web/sites/config@2025-03-01' = {
  parent: site
  name: 'appsettings'
  properties: union(
    {
      AzureWebJobsStorage__accountName: storageAccountName
      AzureWebJobsStorage__credential: 'managedidentity'
      AzureWebJobsStorage__clientId: identityClientId
      ServiceBusConnection__fullyQualifiedNamespace: serviceBusHostName
      ServiceBusConnection__credential: 'managedidentity'
      ServiceBusConnection__clientId: identityClientId
      CosmosConnection__accountEndpoint: cosmosEndpoint
      CosmosConnection__credential: 'managedidentity'
      CosmosConnection__clientId: identityClientId
      AZURE_CLIENT_ID: identityClientId
      APPLICATIONINSIGHTS_CONNECTION_STRING: applicationInsightsConnectionString
      APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
    },
    settings,
    toObject(
      filter(items(optionalSettings), setting => !empty(setting.value)),
      setting => setting.key,
      setting => setting.value
    )
  )
}

resource ftpCredentials 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: site
  name: 'ftp'
  properties: {
    allow: false
  }
}

resource scmCredentials 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: site
  name: 'scm'
  properties: {
    allow: false
  }
}

// Bearer tokens are checked, so no client secret is needed. The health answer stays open: it holds names only.
resource signIn 'Microsoft.Web/sites/config@2025-03-01' = if (!empty(entraClientId)) {
  parent: site
  name: 'authsettingsV2'
  properties: {
    platform: {
      enabled: true
    }
    globalValidation: {
      requireAuthentication: true
      unauthenticatedClientAction: 'Return401'
      excludedPaths: ['/api/health']
    }
    identityProviders: {
      azureActiveDirectory: {
        enabled: true
        registration: {
          clientId: entraClientId
          openIdIssuer: '${environment().authentication.loginEndpoint}${tenant().tenantId}/v2.0'
        }
        validation: {
          allowedAudiences: ['api://${entraClientId}', entraClientId]
        }
      }
    }
    login: {
      tokenStore: {
        enabled: false
      }
    }
  }
}

@description('Name of the app.')
output name string = site.name

@description('Resource id of the app.')
output id string = site.id

@description('Address of the HTTP functions.')
output url string = 'https://${site.properties.defaultHostName}'
