// Package answercost writes into an answer what its request has cost, for clients that ask for it. It changes bytes of the
// client's answer, after package format has rewritten those of the provider.
//
// Invariants:
//
//   - The amount is that of the usage event, and is written only after the event has been stored: what a client has been
//     told is what is settled, whatever becomes of the process.
//   - An amount that may still change is left out, never written as zero.
//   - Nothing but the usage of an answer changes, and nothing at all for a client that does not ask.
package answercost

import (
	"net/http"
	"strconv"

	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/event"
	"modelgateway/shared/price"
)

// Asked reports whether a request asks for its cost, by the header x-include-cost.
func Asked(h http.Header) bool {
	sent := h["X-Include-Cost"]
	return len(sent) > 0 && (sent[0] == "1" || sent[0] == "true")
}

// Charge is the charge of a request.
type Charge struct {
	Format   catalogkv.Format
	Currency string
	Event    *event.Usage
}

// Of returns the charge that an event has recorded, nil if it is unknown: nothing was charged, an operator will decide about
// the event, or the event is not stored and could be lost with the process.
func Of(f catalogkv.Format, currency string, e *event.Usage, stored bool) *Charge {
	if e == nil || !stored || e.Rule == event.RuleNone || e.Implausible() != "" || currency == "" {
		return nil
	}
	return &Charge{Format: f, Currency: currency, Event: e}
}

// JSON returns an answer in one piece with the charge in its usage, in three parts: copying the answer could take much
// memory. A nil Charge leaves the answer as it is.
func (c *Charge) JSON(body []byte) (before, cost, after []byte) {
	if c == nil {
		return body, nil, nil
	}
	p, ok := find(body, 0)
	if !ok {
		return body, nil, nil
	}
	return body[:p.from], c.appendAt(nil, p), body[p.to:]
}

// place is where the charge goes in an object: in place of text[from:to].
type place struct {
	from, to int
	// comma reports whether a member comes before; missing, whether there is no usage object; named, whether its name is
	// there, with another value.
	comma, missing, named bool
}

// find returns the place in the object at index start of text. ok is false if there is no complete object.
func find(text []byte, start int) (p place, ok bool) {
	c := jsonspan.ObjectAt(text, start)
	usage, usageEnd, members := -1, 0, false
	for c.Next() {
		members = true
		if string(c.DecodedName()) == "usage" { // clients read the last of several
			usage, usageEnd = c.Start(), c.End()
		}
	}
	end := c.SkipRest()
	if !c.Complete() {
		return p, false
	}
	if usage < 0 {
		p = at(end - 1)
		p.comma, p.missing = members, true
		return p, true
	}

	u := jsonspan.ObjectAt(text, usage)
	members = u.Next()
	end = u.SkipRest()
	if !u.Complete() {
		p.from, p.to, p.missing, p.named = usage, usageEnd, true, true
		return p, true
	}
	p = at(end - 1)
	p.comma = members
	return p, true
}

// at returns the place at an index, where nothing is replaced.
func at(i int) place { return place{from: i, to: i} }

// appendAt appends what goes to a place.
func (c *Charge) appendAt(dst []byte, p place) []byte {
	if p.comma {
		dst = append(dst, ',')
	}
	if !p.missing {
		return c.appendMembers(dst)
	}
	if !p.named {
		dst = append(dst, `"usage":`...)
	}
	return c.appendUsage(dst)
}

// appendUsage appends a usage object, with the counts that are charged.
func (c *Charge) appendUsage(dst []byte) []byte {
	u := &c.Event.Usage
	dst = append(dst, '{')
	for _, count := range c.counts(u) {
		dst = append(dst, '"')
		dst = append(dst, count.name...)
		dst = append(dst, `":`...)
		dst = append(strconv.AppendInt(dst, count.n, 10), ',')
	}
	return append(c.appendMembers(dst), '}')
}

type count struct {
	name string
	n    int64
}

// counts returns the counts without which clients cannot read a usage object of the format.
func (c *Charge) counts(u *price.Usage) []count {
	input, output := u.TotalInput(), u.Output
	switch c.Format {
	case catalogkv.Chat:
		return []count{{"prompt_tokens", input}, {"completion_tokens", output}, {"total_tokens", input + output}}
	case catalogkv.Responses:
		return []count{{"input_tokens", input}, {"output_tokens", output}, {"total_tokens", input + output}}
	case catalogkv.Messages:
		return []count{{"input_tokens", u.Input}, {"output_tokens", output}}
	case catalogkv.Images, catalogkv.Videos:
	}
	return nil
}

// appendMembers appends the members of the charge.
func (c *Charge) appendMembers(dst []byte) []byte {
	dst = append(dst, `"cost":`...)
	dst = append(dst, c.Event.Cost.String()...)
	dst = append(dst, `,"cost_currency":`...)
	dst = jsonspan.AppendString(dst, c.Currency)
	if c.Event.Estimated {
		dst = append(dst, `,"cost_estimated":true`...)
	}
	return dst
}
