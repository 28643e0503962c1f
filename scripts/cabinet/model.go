package cabinet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// ChatModel returns a public model of the gateway that answers chat requests: that of the demo, or the first by id.
func ChatModel(ctx context.Context, gateway string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+"/v1/models", nil)
	if err != nil {
		return "", fmt.Errorf("request: %w", err)
	}

	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("list models: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()

	var list struct {
		Data []struct {
			ID        string   `json:"id"`
			Endpoints []string `json:"endpoints"`
		} `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return "", fmt.Errorf("list models: %w", err)
	}

	var fit []string
	for _, m := range list.Data {
		if slices.Contains(m.Endpoints, "/v1/chat/completions") {
			fit = append(fit, m.ID)
		}
	}
	if slices.Contains(fit, "demo-chat") {
		return "demo-chat", nil
	}
	if len(fit) == 0 {
		return "", errors.New("the gateway has no public model that answers chat requests: the catalog needs one")
	}

	return fit[0], nil
}
