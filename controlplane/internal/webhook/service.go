package webhook

import (
	"context"
	"fmt"
	"time"

	"modelgateway/controlplane/adminclient/signature"
	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/validation"
	"modelgateway/controlplane/internal/vault"
	"modelgateway/shared/ident"
)

// Query selects endpoints, oldest first.
type Query struct {
	// After selects endpoints created after this one; the zero ID starts with the first.
	After ID
	// Limit is the maximum number of endpoints.
	Limit int
}

// DeliveryQuery selects the deliveries of an endpoint, newest first.
type DeliveryQuery struct {
	EndpointID ID
	// State selects deliveries in that state; empty means all.
	State State
	// Before selects deliveries older than this one; the zero ID starts with the newest.
	Before DeliveryID
	// Limit is the maximum number of deliveries.
	Limit int
}

// EndpointStore stores endpoints. Each method is one transaction, which also writes the audit
// entry of a change.
type EndpointStore interface {
	// Create stores an endpoint with its secret. If the id exists already, it returns the stored endpoint and
	// secret.
	Create(ctx context.Context, e Endpoint, s Secret) (Endpoint, Secret, error)
	Get(ctx context.Context, id ID) (Endpoint, error)
	List(ctx context.Context, q Query) ([]Endpoint, error)
	// Update locks the endpoint and stores the result of decide, which may be called twice.
	Update(ctx context.Context, id ID, decide func(Endpoint) (Endpoint, error)) (Endpoint, error)
	Delete(ctx context.Context, id ID) error
	// Rotate adds a secret and lets the others expire after the overlap. If a secret with this id exists, it returns
	// that one.
	Rotate(ctx context.Context, id ID, s Secret, overlap time.Duration) (Secret, error)
}

// DeliveryStore reads deliveries and schedules redeliveries.
type DeliveryStore interface {
	Deliveries(ctx context.Context, q DeliveryQuery) ([]Delivery, error)
	// Events returns events with their deliveries.
	Events(ctx context.Context, q EventQuery) ([]Listed, error)
	// Delivery returns a delivery with all its attempts, oldest first.
	Delivery(ctx context.Context, id DeliveryID) (Delivery, []Attempt, error)
	// Redeliver makes a delivery due now and starts its delays again.
	Redeliver(ctx context.Context, id DeliveryID) (Delivery, error)
	// RedeliverFailed redelivers all deliveries of an endpoint that failed since a time, and returns their number.
	RedeliverFailed(ctx context.Context, id ID, since time.Time) (int64, error)
	// Test writes a test event for one endpoint. If an event with this id exists, it does nothing.
	Test(ctx context.Context, endpoint ID, event ident.UUID) error
}

// AlertStore stores the alarm thresholds of accounts.
type AlertStore interface {
	Alerts(ctx context.Context, id account.ID) (Alerts, error)
	// SetAlerts replaces the thresholds and raises the alarms that the new ones cause.
	SetAlerts(ctx context.Context, id account.ID, a Alerts) error
}

// Store is the persistence of a Service.
type Store interface {
	EndpointStore
	DeliveryStore
	AlertStore
}

// Vault encrypts and decrypts the secrets of endpoints.
type Vault interface {
	Seal(secret []byte, context string) vault.Sealed
	Open(s vault.Sealed, context string) ([]byte, error)
}

// Config holds the dependencies and settings of a Service.
type Config struct {
	Store Store
	Vault Vault
	// Insecure allows endpoints without TLS.
	Insecure bool
}

// Service manages endpoints and deliveries.
type Service struct{ cfg Config }

// NewService returns a Service.
func NewService(cfg Config) *Service { return &Service{cfg} }

// Create creates an endpoint and returns it with its secret, which is never shown again. It is
// idempotent by e.ID.
func (s *Service) Create(ctx context.Context, e Endpoint) (Endpoint, string, error) {
	if err := e.validate(s.cfg.Insecure); err != nil {
		return Endpoint{}, "", err
	}
	made, secret, err := s.cfg.Store.Create(ctx, e, s.newSecret(e.ID, ident.New()))
	if err != nil {
		return Endpoint{}, "", err
	}
	text, err := s.text(made.ID, secret)
	return made, text, err
}

func (s *Service) newSecret(endpoint ID, id ident.UUID) Secret {
	return Secret{ID: id, Sealed: s.cfg.Vault.Seal([]byte(signature.NewSecret().Text()), endpoint.context())}
}

func (s *Service) text(endpoint ID, secret Secret) (string, error) {
	text, err := s.cfg.Vault.Open(secret.Sealed, endpoint.context())
	if err != nil {
		return "", fmt.Errorf("webhook: %w", err)
	}
	return string(text), nil
}

// Get returns an endpoint, or ErrNotFound.
func (s *Service) Get(ctx context.Context, id ID) (Endpoint, error) { return s.cfg.Store.Get(ctx, id) }

// List returns endpoints.
func (s *Service) List(ctx context.Context, q Query) ([]Endpoint, error) {
	return s.cfg.Store.List(ctx, q)
}

// Patch changes an endpoint. Enabling an endpoint resets its failure count.
func (s *Service) Patch(ctx context.Context, id ID, p Patch) (Endpoint, error) {
	return s.cfg.Store.Update(ctx, id, func(before Endpoint) (Endpoint, error) {
		tag, err := before.Tag()
		if err == nil {
			err = p.Match.Check(tag)
		}
		if err != nil {
			return Endpoint{}, err
		}
		after := p.apply(before)
		return after, after.validate(s.cfg.Insecure)
	})
}

// Delete deletes an endpoint with its deliveries.
func (s *Service) Delete(ctx context.Context, id ID) error { return s.cfg.Store.Delete(ctx, id) }

// Rotate gives an endpoint a new secret and returns it. Until the overlap ends, events are signed
// with the old secrets as well. It is idempotent by operation.
func (s *Service) Rotate(ctx context.Context, id ID, operation ident.UUID, overlap time.Duration) (string, error) {
	if overlap < 0 || overlap > maxOverlap {
		return "", validation.New("overlap_seconds", "must be between 0 and %d", int(maxOverlap.Seconds()))
	}
	kept, err := s.cfg.Store.Rotate(ctx, id, s.newSecret(id, operation), overlap)
	if err != nil {
		return "", err
	}
	return s.text(id, kept)
}

// Deliveries returns the deliveries of an endpoint.
func (s *Service) Deliveries(ctx context.Context, q DeliveryQuery) ([]Delivery, error) {
	if _, err := s.cfg.Store.Get(ctx, q.EndpointID); err != nil {
		return nil, err
	}
	return s.cfg.Store.Deliveries(ctx, q)
}

// Delivery returns a delivery with all its attempts, or ErrDeliveryNotFound.
func (s *Service) Delivery(ctx context.Context, id DeliveryID) (Delivery, []Attempt, error) {
	return s.cfg.Store.Delivery(ctx, id)
}

// Redeliver delivers an event to an endpoint again.
func (s *Service) Redeliver(ctx context.Context, id DeliveryID) (Delivery, error) {
	return s.cfg.Store.Redeliver(ctx, id)
}

// RedeliverFailed redelivers all deliveries of an endpoint that failed since a time.
func (s *Service) RedeliverFailed(ctx context.Context, id ID, since time.Time) (int64, error) {
	return s.cfg.Store.RedeliverFailed(ctx, id, since)
}

// Test sends a test event to an endpoint and returns the event's id. It is idempotent by
// operation.
func (s *Service) Test(ctx context.Context, id ID, operation ident.UUID) (string, error) {
	if err := s.cfg.Store.Test(ctx, id, operation); err != nil {
		return "", err
	}
	return ident.Event.Format(operation), nil
}

// Alerts returns the thresholds of an account, or account.ErrNotFound.
func (s *Service) Alerts(ctx context.Context, id account.ID) (Alerts, error) {
	return s.cfg.Store.Alerts(ctx, id)
}

// SetAlerts replaces the thresholds of an account.
func (s *Service) SetAlerts(ctx context.Context, id account.ID, a Alerts) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return s.cfg.Store.SetAlerts(ctx, id, a)
}
