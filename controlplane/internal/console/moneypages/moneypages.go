// Package moneypages has the pages of the console about the check of the books and what could not be settled.
package moneypages

import "modelgateway/controlplane/internal/console/kit"

// Section returns the pages.
func Section() kit.Section {
	return kit.Section{Name: "Money"}
}
