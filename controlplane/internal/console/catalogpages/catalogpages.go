// Package catalogpages has the pages of the console about models, prices, routes and providers.
package catalogpages

import "modelgateway/controlplane/internal/console/kit"

// Section returns the pages.
func Section() kit.Section {
	return kit.Section{Name: "Catalog"}
}
