// Alerts. Each names its severity, what missing data means, and its runbook; the queries are files in ../alerts.
// Counts of messages per queue are known to the broker's metrics alone, outcomes to the app's metrics alone: a
// duplicate that the app found is a completed message for the broker.

@description('Region of the log alerts.')
param location string

@description('Tags.')
param tags { *: string }

@description('Name of the action group.')
param actionGroupName string

@description('Who is told by mail; empty for nobody, the alerts then show in the portal alone.')
param email string

@description('Where the runbooks are; the name of the alert is added as a fragment.')
param runbook string

@description('Workspace that the queries read.')
param workspaceId string

@description('Service Bus namespace.')
param namespaceId string

@description('Queues that a function receives from.')
param workingQueues string[]

@description('Roles of these queues, in the same order.')
param workingRoles string[]

@description('Queue of parked messages.')
param quarantineQueue string

@description('Size limit of each queue in MB.')
param queueSizeMegabytes int

@description('Cosmos DB account.')
param cosmosAccountId string

@description('Setting GAP_ALARM_SECONDS.')
param gapAlarmSeconds int

@description('Age of the oldest unfinished record that is told.')
param unfinishedAlarmSeconds int

@description('Time from enqueueing to completion that is told.')
param lagAlarmSeconds int

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: actionGroupName
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'convoy'
    enabled: true
    emailReceivers: map(empty(email) ? [] : [email], address => {
      name: 'operator'
      emailAddress: address
      useCommonAlertSchema: true
    })
  }
}

var healthyWithoutData = 'Missing data: healthy.'

var logAlerts = [
  {
    name: 'duplicate-rate'
    severity: 3
    evaluationFrequency: 'PT15M'
    windowSize: 'P1D'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/duplicate-rate.kql')
  }
  {
    name: 'payload-mismatch'
    severity: 1
    evaluationFrequency: 'PT5M'
    windowSize: 'PT10M'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/payload-mismatch.kql')
  }
  {
    name: 'gap-age'
    severity: 2
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    missingData: 'Missing data: healthy here, told by no-sweep.'
    query: replace(loadTextContent('../alerts/gap-age.kql'), '{{gapAlarmSeconds}}', string(gapAlarmSeconds))
  }
  {
    name: 'unfinished-outboxes'
    severity: 2
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    missingData: 'Missing data: healthy here, told by no-sweep.'
    query: replace(
      loadTextContent('../alerts/unfinished-outboxes.kql'),
      '{{unfinishedAlarmSeconds}}',
      string(unfinishedAlarmSeconds)
    )
  }
  {
    name: 'no-sweep'
    severity: 1
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    missingData: 'Missing data: the fault itself.'
    query: loadTextContent('../alerts/no-sweep.kql')
  }
  {
    name: 'quarantine-failed'
    severity: 1
    evaluationFrequency: 'PT5M'
    windowSize: 'PT10M'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/quarantine-failed.kql')
  }
  {
    name: 'effect-parked'
    severity: 1
    evaluationFrequency: 'PT5M'
    windowSize: 'PT10M'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/effect-parked.kql')
  }
  {
    name: 'partition-full'
    severity: 1
    evaluationFrequency: 'PT5M'
    windowSize: 'PT10M'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/partition-full.kql')
  }
  {
    name: 'outbox-stuck'
    severity: 2
    evaluationFrequency: 'PT15M'
    windowSize: 'PT1H'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/outbox-stuck.kql')
  }
  {
    name: 'configuration'
    severity: 1
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/configuration.kql')
  }
  {
    name: 'ledger-inconsistent'
    severity: 2
    evaluationFrequency: 'PT15M'
    windowSize: 'PT30M'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/ledger-inconsistent.kql')
  }
  {
    name: 'failures'
    severity: 2
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    missingData: healthyWithoutData
    query: loadTextContent('../alerts/failures.kql')
  }
  {
    name: 'lag'
    severity: 3
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    missingData: 'Missing data: healthy here, told by stalled.'
    query: replace(loadTextContent('../alerts/lag.kql'), '{{lagAlarmSeconds}}', string(lagAlarmSeconds))
  }
]

// A query gives rows only where something is wrong, so every rule counts rows.
resource logRules 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [
  for alert in logAlerts: {
    name: 'convoy-${alert.name}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: 'Convoy: ${alert.name}'
      description: '${alert.missingData} Runbook: ${runbook}#${alert.name}'
      severity: alert.severity
      enabled: true
      scopes: [workspaceId]
      evaluationFrequency: alert.evaluationFrequency
      windowSize: alert.windowSize
      autoMitigate: true
      // The tables hold nothing yet when the rules are made.
      skipQueryValidation: true
      criteria: {
        allOf: [
          {
            query: alert.query
            timeAggregation: 'Count'
            operator: 'GreaterThan'
            threshold: 0
            failingPeriods: {
              numberOfEvaluationPeriods: 1
              minFailingPeriodsToAlert: 1
            }
          }
        ]
      }
      actions: {
        actionGroups: [actionGroup.id]
      }
    }
  }
]

var metricAlerts = [
  {
    name: 'dead-letter'
    severity: 2
    scope: namespaceId
    metricNamespace: 'Microsoft.ServiceBus/namespaces'
    metricName: 'DeadletteredMessages'
    timeAggregation: 'Maximum'
    threshold: 0
    dimension: 'EntityName'
    values: ['*']
  }
  {
    name: 'quarantine-depth'
    severity: 2
    scope: namespaceId
    metricNamespace: 'Microsoft.ServiceBus/namespaces'
    metricName: 'ActiveMessages'
    timeAggregation: 'Maximum'
    threshold: 0
    dimension: 'EntityName'
    values: [quarantineQueue]
  }
  {
    name: 'queue-size'
    severity: 2
    scope: namespaceId
    metricNamespace: 'Microsoft.ServiceBus/namespaces'
    metricName: 'Size'
    timeAggregation: 'Maximum'
    threshold: queueSizeMegabytes * 1048576 / 10 * 7
    dimension: 'EntityName'
    values: ['*']
  }
  {
    name: 'bus-throttled'
    severity: 3
    scope: namespaceId
    metricNamespace: 'Microsoft.ServiceBus/namespaces'
    metricName: 'ThrottledRequests'
    timeAggregation: 'Total'
    threshold: 0
    dimension: 'EntityName'
    values: ['*']
  }
  {
    name: 'bus-errors'
    severity: 3
    scope: namespaceId
    metricNamespace: 'Microsoft.ServiceBus/namespaces'
    metricName: 'ServerErrors'
    timeAggregation: 'Total'
    threshold: 10
    dimension: 'EntityName'
    values: ['*']
  }
  {
    name: 'database-throttled'
    severity: 3
    scope: cosmosAccountId
    metricNamespace: 'Microsoft.DocumentDB/databaseAccounts'
    metricName: 'TotalRequests'
    timeAggregation: 'Count'
    threshold: 20
    dimension: 'StatusCode'
    values: ['429']
  }
]

// A static threshold is not evaluated where a metric has no data, and an alert that is open then stays as it is.
resource metricRules 'Microsoft.Insights/metricAlerts@2026-01-01' = [
  for alert in metricAlerts: {
    name: 'convoy-${alert.name}'
    location: 'global'
    tags: tags
    properties: {
      description: 'Missing data: healthy. Runbook: ${runbook}#${alert.name}'
      severity: alert.severity
      enabled: true
      scopes: [alert.scope]
      evaluationFrequency: 'PT5M'
      windowSize: 'PT15M'
      autoMitigate: true
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            name: alert.name
            criterionType: 'StaticThresholdCriterion'
            metricNamespace: alert.metricNamespace
            metricName: alert.metricName
            timeAggregation: alert.timeAggregation
            operator: 'GreaterThan'
            threshold: alert.threshold
            dimensions: [
              {
                name: alert.dimension
                operator: 'Include'
                values: alert.values
              }
            ]
          }
        ]
      }
      actions: [
        {
          actionGroupId: actionGroup.id
        }
      ]
    }
  }
]

// Messages wait and none is completed. One rule a queue: several criteria allow one value per dimension only. Named by
// role: a rule named by queue would stay behind, and go on telling, when the queues move to a new generation.
resource stalledRules 'Microsoft.Insights/metricAlerts@2026-01-01' = [
  for (queue, i) in workingQueues: {
    name: 'convoy-stalled-${workingRoles[i]}'
    location: 'global'
    tags: tags
    properties: {
      description: 'Missing data: not evaluated; no-sweep tells where the whole app is silent. Runbook: ${runbook}#stalled'
      severity: 1
      enabled: true
      scopes: [namespaceId]
      evaluationFrequency: 'PT5M'
      windowSize: 'PT15M'
      autoMitigate: true
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            name: 'waiting'
            criterionType: 'StaticThresholdCriterion'
            metricNamespace: 'Microsoft.ServiceBus/namespaces'
            metricName: 'ActiveMessages'
            timeAggregation: 'Minimum'
            operator: 'GreaterThan'
            threshold: 0
            dimensions: [
              {
                name: 'EntityName'
                operator: 'Include'
                values: [queue]
              }
            ]
          }
          {
            name: 'completed'
            criterionType: 'StaticThresholdCriterion'
            metricNamespace: 'Microsoft.ServiceBus/namespaces'
            metricName: 'CompleteMessage'
            timeAggregation: 'Total'
            operator: 'LessThan'
            threshold: 1
            dimensions: [
              {
                name: 'EntityName'
                operator: 'Include'
                values: [queue]
              }
            ]
          }
        ]
      }
      actions: [
        {
          actionGroupId: actionGroup.id
        }
      ]
    }
  }
]
