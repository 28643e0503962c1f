// Package systempages has the pages of the console about the fleet, webhooks, access and secrets.
package systempages

import "modelgateway/controlplane/internal/console/kit"

// Section returns the pages.
func Section() kit.Section {
	return kit.Section{Name: "System"}
}
