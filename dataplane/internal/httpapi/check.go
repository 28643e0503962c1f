package httpapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"

	"modelgateway/dataplane/internal/admission"
	"modelgateway/dataplane/internal/auth"
	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/httpapi/refused"
	"modelgateway/dataplane/internal/httpapi/upload"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/wire"
)

// authenticate returns the API key of the request, which it also sets in the exchange.
func (s *Server) authenticate(x *exchange, r *http.Request) (*auth.Key, error) {
	text, _ := auth.KeyText(r.Header)
	key, err := s.Keys.Lookup(r.Context(), text)
	if err == nil {
		err = key.Permits(x)
	}
	if err != nil {
		if inactive, ok := errors.AsType[*auth.InactiveError](err); ok {
			x.key = inactive.Key // for the log and the refusals: the client does not learn that the key exists
		}
		return nil, fmt.Errorf("look up key: %w", err)
	}
	x.key = key
	return key, nil
}

// authenticateReader authenticates a request that is answered without an admission. The session must be valid: without
// one the proxy would not know that the key was revoked.
func (s *Server) authenticateReader(x *exchange, r *http.Request) (*auth.Key, error) {
	key, err := s.authenticate(x, r)
	if err != nil {
		return nil, err
	}
	if err := s.Admission.Check(r.Context(), key); err != nil {
		return nil, fmt.Errorf("check key: %w", err)
	}
	return key, nil
}

// The limits of request bodies, in bytes.
const (
	maxTextBody  = 25 << 20
	maxMediaBody = 70 << 20
)

func bodyLimit(f catalogkv.Format) int64 {
	if f.Type() == catalogkv.Text {
		return maxTextBody
	}
	return maxMediaBody
}

// readBody reads the request body. The caller calls its Done.
func (s *Server) readBody(x *exchange, r *http.Request, limit int64) (*upload.Body, error) {
	x.reading, x.turn = true, s.Turns.Of(x.key.AccountID)
	body, err := s.uploads.Read(upload.Request{
		HTTP:  r,
		Conn:  x.conn,
		Gate:  x,
		Grant: s.Budget.Begin(x.key.AccountID),
		Turn:  &x.turn,
		Slots: x.key.MaxConcurrent,
		Began: x.started,
		Limit: limit,
	})
	if err != nil {
		return nil, err
	}

	x.unread = false
	return body, nil
}

// AdmitLarge implements upload.Gate: a large body is read only if its account, and every limit that applies to all its models, has
// units left, and no more of them at the same time than the account, and the key, has slots. It reserves nothing. If the control plane
// does not decide, the body is read: the admission after it decides.
func (x *exchange) AdmitLarge() error {
	s, key := x.server, x.key
	if !s.reading.Enter(key.AccountID, boundOf(key.MaxConcurrent)) {
		return upload.ErrCrowded
	}
	if !s.reading.Enter(key.KeyID, boundOf(key.KeyMaxConcurrent)) {
		s.reading.Leave(key.AccountID)
		return upload.ErrKeyCrowded
	}

	reservation, err := s.Admission.Acquire(x.request.Context(), admission.Request{Key: key, Use: x})
	var refused *admission.RefusedError
	switch {
	case err == nil:
		reservation.Release()
		return nil
	case errors.As(err, &refused) && refused.Reason != wire.BalanceInsufficient && refused.Reason != wire.LimitInsufficient:
		return nil // what is reserved may be free when the body has come
	case refused != nil, errors.Is(err, admission.ErrKey):
		x.LargeDone()
		return err
	}

	return nil
}

func (x *exchange) LargeDone() {
	x.server.reading.Leave(x.key.AccountID)
	x.server.reading.Leave(x.key.KeyID)
}

// boundOf returns the bound that a number of slots is; zero is none.
func boundOf(slots int64) int64 {
	if slots <= 0 {
		return math.MaxInt64
	}
	return slots
}

// findModel returns the model if it exists, is visible to the account and supports the endpoint's format. It sets the
// model in the exchange.
func (s *Server) findModel(
	x *exchange,
	key *auth.Key,
	snapshot *catalog.Snapshot,
	name string,
	f catalogkv.Format,
) (*catalog.Model, error) {
	m := snapshot.Model(name, key.AccountID)
	if m == nil || !m.Supports(f) {
		return nil, refused.NoModel(name)
	}
	if !key.Rules.AllowsModel(m.ID) {
		return nil, refused.NoModelForKey(name)
	}
	x.model = m.ID
	return m, nil
}
