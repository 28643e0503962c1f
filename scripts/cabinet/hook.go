package cabinet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/adminclient/signature"
)

// Listen serves the cabinet's Receiver on the loopback interface and registers it as a webhook of the gateway, until
// stop is called. A real cabinet has a public address with TLS, registers it once and keeps the secret:
//
//	gwctl webhooks create --url https://cabinet.example.com/hooks --event-types account.low_balance,limit.share_spent
func (c *Cabinet) Listen(ctx context.Context) (stop func() error, err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for webhooks: %w", err)
	}

	answer, err := c.API.CreateWebhook(ctx, nil, adminclient.WebhookCreate{
		URL: "http://" + listener.Addr().String() + "/", EventTypes: eventTypes,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create webhook: %w", err), listener.Close())
	}

	secret, err := signature.ParseSecret(answer.Value.Secret)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}

	server := &http.Server{
		Handler:           &Receiver{Secrets: []signature.Secret{secret}, Handle: c.Receive},
		ReadHeaderTimeout: 5 * time.Second,
	}
	go func() { _ = server.Serve(listener) }() // until Close

	return func() error {
		_, err := c.API.DeleteWebhook(context.WithoutCancel(ctx), answer.Value.Webhook.ID)
		return errors.Join(err, server.Close())
	}, nil
}
