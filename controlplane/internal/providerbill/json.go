package providerbill

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// page is a page of a report of OpenAI or Anthropic: buckets of a day each.
type page struct {
	Data []struct {
		// StartTime is in Unix seconds, StartingAt in RFC 3339.
		StartTime  int64    `json:"start_time"`
		StartingAt string   `json:"starting_at"`
		Results    []result `json:"results"`
	} `json:"data"`
	HasMore *bool `json:"has_more"`
}

// result is a line of any of the reports.
type result struct {
	Object string `json:"object"`
	// Amount is an object at OpenAI, a decimal of cents at Anthropic.
	Amount json.RawMessage `json:"amount"`
	// Currency, Description and CostType are those of Anthropic.
	Currency    string  `json:"currency"`
	CostType    *string `json:"cost_type"`
	WorkspaceID *string `json:"workspace_id"`
	// LineItem is the model and what of it, such as "gpt-5, input".
	LineItem  *string `json:"line_item"`
	ProjectID *string `json:"project_id"`
	APIKeyID  *string `json:"api_key_id"`
	Model     *string `json:"model"`

	NumModelRequests int64 `json:"num_model_requests"`
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
}

// parseJSON reads the pages of a report, one after another.
func parseJSON(in io.Reader) (*Bill, error) {
	decoder := json.NewDecoder(in)
	bill := &Bill{}
	more := true
	for n := 0; ; n++ {
		var p page
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) && n > 0 {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if p.HasMore == nil {
			return nil, fmt.Errorf("%w: page %d has no has_more", ErrFormat, n+1)
		}
		more = *p.HasMore
		if err := bill.addPage(&p); err != nil {
			return nil, err
		}
	}
	if more {
		return nil, fmt.Errorf("%w: it ends before the last page", ErrFormat)
	}
	if bill.Format == "" {
		return nil, fmt.Errorf("%w: it has no line", ErrFormat)
	}
	return bill, nil
}

func (b *Bill) addPage(p *page) error {
	for _, bucket := range p.Data {
		at := time.Unix(bucket.StartTime, 0)
		if bucket.StartingAt != "" {
			var err error
			if at, err = time.Parse(time.RFC3339, bucket.StartingAt); err != nil {
				return fmt.Errorf("%w: %w", ErrFormat, err)
			}
		}
		for i := range bucket.Results {
			if err := b.addResult(day(at), &bucket.Results[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Bill) addResult(on time.Time, r *result) error {
	format := OpenAICosts
	switch {
	case r.Object == "organization.costs.result":
	case strings.HasPrefix(r.Object, "organization.usage."):
		format = OpenAIUsage
	case r.Object == "" && len(r.Amount) > 0:
		format = AnthropicCost
	default:
		return fmt.Errorf("%w: %q is not a kind of line", ErrFormat, r.Object)
	}
	if b.Format != "" && b.Format != format {
		return fmt.Errorf("%w: it has lines of two reports", ErrFormat)
	}

	b.Format = format
	switch format {
	case OpenAIUsage:
		return b.addUsage(on, r)
	case OpenAICosts:
		return b.addOpenAICost(on, r)
	default:
		return b.addAnthropicCost(on, r)
	}
}

func (b *Bill) addUsage(on time.Time, r *result) error {
	if min(r.NumModelRequests, r.InputTokens, r.OutputTokens) < 0 {
		return fmt.Errorf("%w: a count is negative", ErrFormat)
	}
	credential := value(r.APIKeyID)
	if credential == "" {
		credential = value(r.ProjectID)
	}
	return b.add(&Line{
		Day:        on,
		Model:      value(r.Model),
		Credential: credential,
		Requests:   r.NumModelRequests,
		Input:      r.InputTokens,
		Output:     r.OutputTokens,
	})
}

func (b *Bill) addOpenAICost(on time.Time, r *result) error {
	var amount struct {
		Value    json.Number `json:"value"`
		Currency string      `json:"currency"`
	}
	if err := json.Unmarshal(r.Amount, &amount); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	model, _, _ := strings.Cut(value(r.LineItem), ",")
	return b.addCharge(on, amount.Value.String(), 0, amount.Currency, model, value(r.ProjectID))
}

func (b *Bill) addAnthropicCost(on time.Time, r *result) error {
	var cents string
	if err := json.Unmarshal(r.Amount, &cents); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	const fromCents = -2
	return b.addCharge(on, cents, fromCents, r.Currency, value(r.Model), value(r.WorkspaceID))
}

// addCharge adds a line with an amount.
func (b *Bill) addCharge(on time.Time, text string, shift int, currency, model, credential string) error {
	amount, err := parseAmount(text, shift)
	if err != nil {
		return err
	}
	b.setStep(step(text, shift))
	if err := b.setCurrency(currency); err != nil {
		return err
	}
	return b.add(&Line{
		Day:        on,
		Model:      strings.TrimSpace(model),
		Credential: credential,
		Amount:     amount,
	})
}

func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
