package wire

import (
	"modelgateway/shared/apikey"
	"modelgateway/shared/subject"
)

// StreamChange is a KeyChange in the stream of changes. A revocation that an
// operator has appended has the revision zero.
type StreamChange struct {
	V int `json:"v"`
	// ID is random: another message may get the place of a lost one.
	ID     string    `json:"id"`
	Change KeyChange `json:"change"`
}

// Valid reports whether the message is one of a control plane or of an operator.
// NATS sends its replies to any subject that a request names, so other texts may
// lie in the stream.
func (c *StreamChange) Valid() bool { return c.ID != "" && c.Change.Kind != "" }

// Subject returns the subject of a change in the stream. A later change under the
// same subject replaces it, and includes its effect.
func (c *KeyChange) Subject() string {
	if c.KeyHash == (apikey.Hash{}) {
		return subject.Change(string(c.Kind), c.Account)
	}
	return subject.Change(string(c.Kind), c.KeyHash.String())
}
