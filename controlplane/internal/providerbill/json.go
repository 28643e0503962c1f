package providerbill

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"modelgateway/controlplane/internal/validation"
)

// bucket is a day of a report.
type bucket struct {
	// StartTime and EndTime are in Unix seconds, StartingAt and EndingAt in RFC 3339.
	StartTime  int64    `json:"start_time"`
	EndTime    int64    `json:"end_time"`
	StartingAt string   `json:"starting_at"`
	EndingAt   string   `json:"ending_at"`
	Results    []result `json:"results"`
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
	// LineItem is the model and what of it, such as "gpt-5, input". Without a comma it is no model: a tool, or storage.
	LineItem  *string `json:"line_item"`
	ProjectID *string `json:"project_id"`
	APIKeyID  *string `json:"api_key_id"`
	Model     *string `json:"model"`

	NumModelRequests int64 `json:"num_model_requests"`
	InputTokens      int64 `json:"input_tokens"`
	OutputTokens     int64 `json:"output_tokens"`
}

// minObject is the least length of a bucket or a result: shorter ones have nothing that a bill needs. Millions of empty ones would
// take many times the memory of their text.
const minObject = 30

var errNoLine = errors.New("an object has too little for a day or a line of a bill")

// UnmarshalJSON reads a bucket.
func (b *bucket) UnmarshalJSON(text []byte) error {
	type plain bucket
	return readObject(text, (*plain)(b))
}

// UnmarshalJSON reads a result.
func (r *result) UnmarshalJSON(text []byte) error {
	type plain result
	return readObject(text, (*plain)(r))
}

func readObject(text []byte, into any) error {
	if len(text) < minObject {
		return errNoLine
	}
	return json.Unmarshal(text, into)
}

// report is a report in JSON while it is read: pages, one after another. No more than a bucket of it is held in memory.
type report struct {
	*json.Decoder
	bounded *boundedReader
}

// next reads the next value, which has a bounded length.
func (r *report) next(into any) error {
	r.bounded.leftOfRecord = maxBucket
	return r.Decode(into) //nolint:wrapcheck // readJSON adds the place
}

// readJSON reads the pages of a report, one after another.
func (b *reading) readJSON(in io.Reader) error {
	bounded := &boundedReader{r: in, left: maxReport, leftOfRecord: maxBucket}
	r := &report{json.NewDecoder(bounded), bounded}
	more := false
	for n := 1; ; n++ {
		start, err := r.Token()
		if errors.Is(err, io.EOF) && n > 1 {
			break
		}
		place := fmt.Sprintf("page %d", n)
		if err == nil && start != json.Delim('{') {
			err = errNoPage
		}
		if err != nil {
			return asInvalid(place, err)
		}
		hasMore, err := b.readPage(r, n)
		if err != nil {
			return asInvalid(place, err)
		}
		if hasMore == nil {
			return validation.New(place, "has no has_more: it is no page of a report of costs or usage")
		}
		more = *hasMore
	}
	if more {
		return validation.New(file, "ends before the last page: get the pages until has_more is false, and put them one after another")
	}
	return nil
}

var errNoPage = errors.New("is no page of a report of costs or usage")

// readPage reads the members of a page: buckets of a day each, and whether there are more pages.
func (b *reading) readPage(r *report, n int) (hasMore *bool, err error) {
	for r.More() {
		name, err := r.Token()
		if err != nil {
			return nil, err
		}
		switch name {
		case "data":
			err = b.readBuckets(r, n)
		case "has_more":
			err = r.next(&hasMore)
		default:
			var other json.RawMessage
			err = r.next(&other)
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = r.Token() // the end of the page
	return hasMore, err
}

func (b *reading) readBuckets(r *report, n int) error {
	switch start, err := r.Token(); {
	case err != nil:
		return err
	case start == nil: // null
		return nil
	case start != json.Delim('['):
		return errNoPage
	}
	for i := 0; r.More(); i++ {
		var day bucket
		if err := r.next(&day); err != nil {
			return err
		}
		if err := b.addBucket(fmt.Sprintf("page %d, data[%d]", n, i), &day); err != nil {
			return err
		}
	}
	_, err := r.Token() // the end of the list
	return err
}

func (b *reading) addBucket(place string, day *bucket) error {
	begins, until := time.Unix(day.StartTime, 0), time.Unix(day.EndTime, 0)
	if day.StartingAt != "" {
		var err, errEnd error
		begins, err = time.Parse(time.RFC3339, day.StartingAt)
		until, errEnd = time.Parse(time.RFC3339, day.EndingAt)
		if err = errors.Join(err, errEnd); err != nil {
			return validation.New(place, "has starting_at or ending_at that is no time in RFC 3339")
		}
	}
	if !until.After(begins) {
		return validation.New(place, "is no day: get the report with buckets of a day or less")
	}
	if b.firstBucket.IsZero() || begins.Before(b.firstBucket) {
		b.firstBucket = begins
	}
	for k := range day.Results {
		b.number++
		b.at = fmt.Sprintf("%s.results[%d]", place, k)
		if err := b.addResult(begins, until, &day.Results[k]); err != nil {
			return err
		}
	}
	return nil
}

func (b *reading) addResult(begins, until time.Time, r *result) error {
	format := OpenAICosts
	switch {
	case r.Object == "organization.costs.result":
	case r.Object == "organization.usage.completions.result": // others count no tokens
		format = OpenAIUsage
	case r.Object == "" && len(r.Amount) > 0:
		format = AnthropicCost
	default:
		return validation.New(b.place("object"), "%.40q is no kind of line", r.Object)
	}
	if b.Format != "" && b.Format != format {
		return validation.New(b.place(""), "is of the report %s, but lines before are of %s", format, b.Format)
	}

	b.Format = format
	switch format {
	case OpenAIUsage:
		return b.addUsage(begins, until, r)
	case OpenAICosts:
		return b.addOpenAICost(begins, until, r)
	default:
		return b.addAnthropicCost(begins, until, r)
	}
}

func (b *reading) addUsage(begins, until time.Time, r *result) error {
	return b.addPeriod(&Line{
		Model:      value(r.Model),
		Credential: cmp.Or(value(r.APIKeyID), value(r.ProjectID)),
		Requests:   r.NumModelRequests,
		Input:      r.InputTokens,
		Output:     r.OutputTokens,
	}, begins, until)
}

func (b *reading) addOpenAICost(begins, until time.Time, r *result) error {
	var amount struct {
		Value    json.Number `json:"value"`
		Currency string      `json:"currency"`
	}
	if err := json.Unmarshal(r.Amount, &amount); err != nil {
		return validation.New(b.place("amount"), "must have a value and a currency")
	}
	model, _, isModel := strings.Cut(value(r.LineItem), ",")
	if !isModel {
		model = ""
	}
	return b.addCharge(begins, until, "amount.value", amount.Value.String(), 0, amount.Currency, model, value(r.ProjectID))
}

func (b *reading) addAnthropicCost(begins, until time.Time, r *result) error {
	var cents string
	if err := json.Unmarshal(r.Amount, &cents); err != nil {
		return validation.New(b.place("amount"), "must be a decimal of cents in quotes")
	}
	const fromCents = -2
	return b.addCharge(begins, until, "amount", cents, fromCents, r.Currency, value(r.Model), value(r.WorkspaceID))
}

// addCharge adds a line with an amount.
func (b *reading) addCharge(begins, until time.Time, member, text string, shift int, currency, model, credential string) error {
	amount, err := b.amount(member, text, shift)
	if err != nil {
		return err
	}
	if err := b.setCurrency(currency); err != nil {
		return err
	}
	return b.addPeriod(&Line{
		Model:      strings.TrimSpace(model),
		Credential: credential,
		Amount:     amount,
	}, begins, until)
}

func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
