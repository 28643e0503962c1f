package pulse

import (
	"time"

	"modelgateway/shared/wire"
)

// KeyReason returns why a key may not be used, as far as its record says: ReasonKeyInactive, ReasonKeyRotated, ReasonKeyPaused or
// ReasonKeyExpired; empty if it may. now is called only if the record has a time.
func KeyReason(k *wire.KeyRecord, now func() time.Time) string {
	switch {
	case !k.Active:
		return ReasonKeyInactive
	case k.SecretUntilMS != 0 && now().UnixMilli() >= k.SecretUntilMS:
		return ReasonKeyRotated
	case k.Rules.Paused:
		return ReasonKeyPaused
	case k.Rules.ExpiresMS != 0 && k.Rules.Expired(now()):
		return ReasonKeyExpired
	default:
		return ""
	}
}
