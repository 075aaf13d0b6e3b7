// Tells by mail when the resource group's cost of a month nears its budget. It stops nothing.

@description('Name of the budget.')
param name string

@description('Amount a month, in the currency of the subscription.')
@minValue(1)
param amount int

@description('First day of a month (yyyy-MM-01). It can not be changed later, so it is given, not computed.')
param startDate string

@description('Who is told.')
param contactEmails string[]

resource budget 'Microsoft.Consumption/budgets@2024-08-01' = {
  name: name
  properties: {
    category: 'Cost'
    amount: amount
    timeGrain: 'Monthly'
    timePeriod: {
      startDate: startDate
    }
    notifications: {
      actual80: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: contactEmails
      }
      forecast100: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: contactEmails
      }
    }
  }
}
