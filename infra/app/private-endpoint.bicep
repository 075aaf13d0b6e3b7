// A private endpoint, and the zone that makes the service's public name resolve to it inside the network.

@description('Name of the endpoint.')
param name string

@description('Region.')
param location string

@description('Tags.')
param tags { *: string }

@description('Network in which the zone is known.')
param networkId string

@description('Subnet that the endpoint takes its address from.')
param subnetId string

@description('Resource id of the service behind the endpoint.')
param serviceId string

@description('Part of the service that is reached.')
@allowed(['Sql', 'blob', 'namespace'])
param groupId string

@description('Private DNS zone of the service.')
param zoneName string

resource zone 'Microsoft.Network/privateDnsZones@2024-06-01' = {
  name: zoneName
  location: 'global'
  tags: tags
}

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = {
  parent: zone
  name: 'network'
  location: 'global'
  tags: tags
  properties: {
    registrationEnabled: false
    virtualNetwork: {
      id: networkId
    }
  }
}

resource endpoint 'Microsoft.Network/privateEndpoints@2025-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    subnet: {
      id: subnetId
    }
    privateLinkServiceConnections: [
      {
        name: groupId
        properties: {
          privateLinkServiceId: serviceId
          groupIds: [groupId]
        }
      }
    ]
  }
}

resource group 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2025-07-01' = {
  parent: endpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: groupId
        properties: {
          privateDnsZoneId: zone.id
        }
      }
    ]
  }
  dependsOn: [link]
}
