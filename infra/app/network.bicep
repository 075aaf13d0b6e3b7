// Virtual network: one subnet that the app runs in, one for private endpoints, and the zones that resolve them.

@description('Name of the network.')
param name string

@description('Region.')
param location string

@description('Tags.')
param tags { *: string }

@description('Address space; its first two /24 become the subnets.')
param addressPrefix string

@description('Beginning of the endpoints\' names.')
param endpointPrefix string

@description('Resource id of the Cosmos DB account.')
param cosmosAccountId string

@description('Resource id of the storage account.')
param storageAccountId string

@description('Resource id of the Service Bus namespace; empty where it can have no private endpoint (Standard).')
param serviceBusId string

resource network 'Microsoft.Network/virtualNetworks@2025-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: {
      addressPrefixes: [addressPrefix]
    }
  }
}

// Flex Consumption: delegated to Microsoft.App/environments, shared with nothing else, no underscore in the name.
resource appSubnet 'Microsoft.Network/virtualNetworks/subnets@2025-07-01' = {
  parent: network
  name: 'app'
  properties: {
    addressPrefix: cidrSubnet(addressPrefix, 24, 0)
    delegations: [
      {
        name: 'functions'
        properties: {
          serviceName: 'Microsoft.App/environments'
        }
      }
    ]
  }
}

resource endpointSubnet 'Microsoft.Network/virtualNetworks/subnets@2025-07-01' = {
  parent: network
  name: 'endpoints'
  properties: {
    addressPrefix: cidrSubnet(addressPrefix, 24, 1)
    privateEndpointNetworkPolicies: 'Disabled'
  }
  dependsOn: [appSubnet] // subnets of one network are written one after the other, else one of them fails
}

module cosmosEndpoint 'private-endpoint.bicep' = {
  params: {
    name: '${endpointPrefix}cosmos'
    location: location
    tags: tags
    networkId: network.id
    subnetId: endpointSubnet.id
    serviceId: cosmosAccountId
    groupId: 'Sql'
    zoneName: 'privatelink.documents.azure.com'
  }
}

module blobEndpoint 'private-endpoint.bicep' = {
  params: {
    name: '${endpointPrefix}blob'
    location: location
    tags: tags
    networkId: network.id
    subnetId: endpointSubnet.id
    serviceId: storageAccountId
    groupId: 'blob'
    zoneName: 'privatelink.blob.${environment().suffixes.storage}'
  }
}

module serviceBusEndpoint 'private-endpoint.bicep' = if (!empty(serviceBusId)) {
  params: {
    name: '${endpointPrefix}servicebus'
    location: location
    tags: tags
    networkId: network.id
    subnetId: endpointSubnet.id
    serviceId: serviceBusId
    groupId: 'namespace'
    zoneName: 'privatelink.servicebus.windows.net'
  }
}

@description('Subnet that the app runs in.')
output appSubnetId string = appSubnet.id
