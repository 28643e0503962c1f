package customerpages

import (
	"strings"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/optional"
	"modelgateway/controlplane/internal/console/kit"
)

const keyRules = "When and for what it may be used"

// settingsFields are the fields of what a key is for, and when and for what it may be used.
func settingsFields(k *adminclient.Key) []kit.Field {
	description, slots := "", ""
	if k.MaxConcurrentRequests != nil {
		slots = itoa(*k.MaxConcurrentRequests)
	}
	if k.Description != nil {
		description = *k.Description
	}

	return []kit.Field{
		{Name: "description", Label: "Description", Value: description},
		metadataField(metadataOf(k)),
		{
			Name:  "paused",
			Label: "Paused: requests are refused with 401 until it is resumed",
			Kind:  "check",
			Value: kit.Checked(k.Paused),
			Group: keyRules,
		},
		{
			Name:  "max_concurrent_requests",
			Label: "Concurrent requests",
			Mono:  true,
			Value: slots,
			Group: keyRules,
			Hint:  "How many of its requests run at the same time at most; further ones get 429. Empty means as many as the account.",
		},
		{
			Name:        "expires_at",
			Label:       "Expires",
			Mono:        true,
			Value:       expiryText(k),
			Group:       keyRules,
			Placeholder: "never",
			Hint:        "A time in UTC such as 2027-01-31T14:00, from which on requests are refused with 401.",
		},
		{
			Name:  "models",
			Label: "Models",
			Kind:  "area",
			Rows:  3,
			Mono:  true,
			Value: strings.Join(k.Models, "\n"),
			Group: keyRules,
			Hint:  "Ids, one in a line, or their beginnings with a * at the end. Empty means all models of the account.",
		},
		{
			Name:  "networks",
			Label: "Networks",
			Kind:  "area",
			Rows:  3,
			Mono:  true,
			Value: strings.Join(k.Networks, "\n"),
			Group: keyRules,
			Hint:  "Networks such as 192.0.2.0/24, or addresses, one in a line. Empty means everywhere.",
		},
	}
}

func metadataOf(k *adminclient.Key) adminclient.Metadata {
	if k.Metadata == nil {
		return nil
	}
	return *k.Metadata
}

func expiryText(k *adminclient.Key) string {
	if k.ExpiresAt == nil {
		return ""
	}
	return k.ExpiresAt.UTC().Format(time.RFC3339)
}

// readSettings reads the fields of settingsFields into a change of k.
func readSettings(in *kit.Input, k *adminclient.Key, patch *adminclient.KeyPatch) error {
	patch.Description, patch.Paused = new(in.Text("description")), new(in.Checked("paused"))
	patch.Models, patch.Networks = optional.Of(strings.Fields(in.Text("models"))), optional.Of(strings.Fields(in.Text("networks")))
	var err error
	if patch.Metadata, err = changedMetadata(in.Text("metadata"), metadataOf(k)); err != nil {
		return err
	}
	patch.MaxConcurrentRequests = optional.Null[int]()
	if in.Text("max_concurrent_requests") != "" {
		slots, err := small(in, "max_concurrent_requests")
		if err != nil {
			return err
		}
		patch.MaxConcurrentRequests = optional.Of(*slots)
	}
	if in.Text("expires_at") == expiryText(k) { // nobody has changed it: it may be over, and has parts of a second that nobody sees
		return nil
	}
	patch.ExpiresAt = optional.Null[time.Time]()
	expires, err := kit.Moment("expires_at", in.Text("expires_at"))
	if expires != nil {
		patch.ExpiresAt = optional.Of(*expires)
	}
	return err
}
