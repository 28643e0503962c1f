// Package operator runs what operators do without a control plane.
package operator

import (
	"context"
	"log/slog"

	"modelgateway/controlplane/internal/bus"
	"modelgateway/controlplane/internal/changestream"
	"modelgateway/controlplane/internal/gwctl/revokedirect"
	"modelgateway/shared/lease/session"
	"modelgateway/shared/subject"
)

// RevokeDirectly revokes keys by the stream of changes, without a control plane. It returns when no proxy
// admits one of them.
func RevokeDirectly(ctx context.Context, r revokedirect.Revocation) error {
	b, err := bus.Connect(bus.Config{
		URL:    r.NATSURL,
		CAFile: r.CAFile,
		Inbox:  subject.OperatorInbox,
		Name:   "gwctl",
	}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer b.Close()
	return changestream.Revoke(ctx, b, r.Hashes, session.Margin, r.Note)
}
