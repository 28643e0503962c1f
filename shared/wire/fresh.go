package wire

import (
	"strconv"

	"modelgateway/shared/apikey"
	"modelgateway/shared/subject"
)

// StreamChange is a message in the stream of changes: a KeyChange, the end of a
// session, or a cluster epoch. A revocation that an operator has appended has the
// revision zero.
type StreamChange struct {
	V int `json:"v"`
	// ID is random: another message may get the place of a lost one.
	ID     string    `json:"id"`
	Change KeyChange `json:"change,omitzero"`
	// Ended is a session that has ended; its proxy must not admit under it any more. Zero if the message is not about that.
	Ended SessionID `json:"ended,omitempty"`
	// Epoch is the cluster epoch: sessions of earlier ones have ended. Zero if the message is not about that.
	Epoch int64 `json:"epoch,omitempty"`
}

// Valid reports whether the message is one of a control plane or of an operator.
// NATS sends its replies to any subject that a request names, so other texts may
// lie in the stream.
func (c *StreamChange) Valid() bool {
	return c.ID != "" && (c.Change.Kind != "" || c.Ended > 0 || c.Epoch > 0)
}

// Subject returns the subject of the message in the stream. A later one under the
// same subject replaces it, and includes its effect.
func (c *StreamChange) Subject() string {
	switch {
	case c.Ended != 0:
		return subject.Change(subject.ChangeSession, strconv.FormatInt(int64(c.Ended), 10))
	case c.Epoch != 0:
		return subject.Change(subject.ChangeEpoch, "cluster")
	}
	return c.Change.Subject()
}

// Includes reports whether this message has the effect of another one of the same
// subject.
func (c *StreamChange) Includes(other *StreamChange) bool {
	return c.Valid() && c.Change.Revision >= other.Change.Revision && c.Ended == other.Ended && c.Epoch >= other.Epoch
}

// Subject returns the subject of a change in the stream. A later change under the
// same subject replaces it, and includes its effect.
func (c *KeyChange) Subject() string {
	if c.KeyHash == (apikey.Hash{}) {
		return subject.Change(string(c.Kind), c.Account)
	}
	return subject.Change(string(c.Kind), c.KeyHash.String())
}

// Beat is a message of a proxy in the stream of changes, which it reads back. Every proxy can read it,
// so it does not have the boot id.
type Beat struct {
	V int `json:"v"`
	// Source is a random id for the beats of one session.
	Source  string    `json:"source"`
	Session SessionID `json:"session"`
	Number  int64     `json:"number"`
	// Previous is the sequence number of the beat before, which the stream must have as the last one when it stores this
	// one; zero if there is none.
	Previous uint64 `json:"previous,omitempty"`
}
