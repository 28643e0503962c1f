// Package webhookapi holds the admin API's handlers of webhook endpoints, deliveries and alarm thresholds.
package webhookapi

import "modelgateway/controlplane/internal/webhook"

// Handlers implements the operations of webhooks.
type Handlers struct{ Webhooks *webhook.Service }
