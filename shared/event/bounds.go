package event

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"modelgateway/shared/price"
)

// The bounds of what settlement stores of an event, whatever its billing rule: that of the usage of plausible requests is far lower, see
// Implausible. Sums of counts and texts that are part of the keys of roll-ups must not depend on what a single proxy reports.
const (
	// maxCount bounds each count of usage: sums of two billion events fit into 63 bits.
	maxCount = 1 << 32
	// maxMS bounds a length of time, in milliseconds.
	maxMS = 1 << 40
	// maxStatus bounds the HTTP status.
	maxStatus = 999
	// maxName bounds names of the gateway, in bytes, and maxText what clients and providers write.
	maxName, maxText = 512, 4096
	// maxLimits bounds the windows of limits: a request has 10 needs at most, one of which is the balance.
	maxLimits = 9
)

// bounds returns everything about the event that is beyond what settlement stores, joined.
func (u *Usage) bounds() error {
	var errs []error
	name := func(member, text string) { errs = append(errs, checkText(member, text, maxName)) }
	name("model", u.Model)
	name("format", u.Format)
	name("provider", u.Provider)
	name("route", u.Route)
	name("credential", u.Credential)
	name("rule", u.Rule)
	name("doubt", u.Doubt)
	name("video_job", u.VideoJob)
	errs = append(
		errs,
		checkText("provider_request_id", u.ProviderRequestID, maxText),
		checkNumber("http_status", int64(u.HTTPStatus), maxStatus),
		checkNumber("first_byte_ms", u.FirstByteMS, maxMS),
		checkUsage("usage", &u.Usage),
	)
	if len(u.Limits) > maxLimits {
		errs = append(errs, fmt.Errorf("event: %d limits; at most %d can apply", len(u.Limits), maxLimits))
	}
	if len(u.Attempts) > MaxAttempts {
		return errors.Join(append(errs, fmt.Errorf("event: %d attempts; at most %d are reported", len(u.Attempts), MaxAttempts))...)
	}

	for i := range u.Attempts {
		a := &u.Attempts[i]
		name("attempts.route", a.Route)
		name("attempts.provider", a.Provider)
		name("attempts.credential", a.Credential)
		name("attempts.credential_name", a.CredentialName)
		name("attempts.class", a.Class)
		name("attempts.skipped", a.Skipped)
		errs = append(
			errs,
			checkText("attempts.provider_request_id", a.ProviderRequestID, maxText),
			checkNumber("attempts.ms", a.MS, maxMS),
			checkUsage("attempts.usage", &a.Usage),
		)
	}

	return errors.Join(errs...)
}

func checkText(member, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("event: %s has %d bytes; at most %d are stored", member, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("event: %s is no text", member)
	}
	return nil
}

func checkNumber(member string, n, most int64) error {
	if n < 0 || n > most {
		return fmt.Errorf("event: %s is %d; must be from 0 to %d", member, n, most)
	}
	return nil
}

func checkUsage(member string, u *price.Usage) error {
	if *u == (price.Usage{}) {
		return nil
	}
	var errs []error
	for i, count := range u.Counts() {
		if *count < 0 || *count > maxCount { // counts are checked for each event, so names are built for wrong ones only
			errs = append(errs, checkNumber(member+"."+string(price.Kinds[i].Line), *count, maxCount))
		}
	}
	for _, count := range secondaryCounts(&u.Secondary) {
		if count.n < 0 || count.n > maxCount {
			errs = append(errs, checkNumber(member+".secondary."+count.name, count.n, maxCount))
		}
	}
	errs = append(
		errs,
		checkText(member+".size", u.Size, maxText),
		checkText(member+".quality", u.Quality, maxText),
		checkText(member+".secondary.kind", u.Secondary.Kind, maxName),
		checkText(member+".secondary.model", u.Secondary.Model, maxText),
	)
	if tier := u.ServiceTier; tier != "" && tier != price.DefaultTier {
		if err := price.CheckServiceTierName(tier); err != nil {
			errs = append(errs, fmt.Errorf("event: %s.service_tier: %w", member, err))
		}
	}
	return errors.Join(errs...)
}
