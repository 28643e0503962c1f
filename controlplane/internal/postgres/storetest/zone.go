package storetest

import (
	"time"

	"modelgateway/controlplane/internal/usage"
)

// Zones are UTC and zones whose days begin at other times.
var Zones = []*time.Location{
	nil,
	mustZone("Asia/Kathmandu"),
	mustZone("America/St_Johns"),
	mustZone("Pacific/Kiritimati"),
	mustZone("America/Los_Angeles"),
}

func mustZone(name string) *time.Location {
	zone, known := usage.FindZone(name)
	if !known {
		panic(name)
	}
	return zone
}
