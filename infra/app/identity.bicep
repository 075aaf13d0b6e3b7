// The one identity that the app runs as. User-assigned, so that roles can be granted before the app exists.

@description('Name of the identity.')
param name string

@description('Region.')
param location string

@description('Tags.')
param tags { *: string }

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: name
  location: location
  tags: tags
}

@description('Resource id, for the site and its deployment storage.')
output id string = identity.id

@description('Client id, for settings: with a user-assigned identity every connection needs it.')
output clientId string = identity.properties.clientId

@description('Object id, for role assignments.')
output principalId string = identity.properties.principalId
