// Package images is the image generation format.
//
// It owns the format's parameter table, how many pictures are asked for and which came
// back, and the sizes and qualities that their price depends on. Pictures are not
// streamed.
package images

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

// The number of pictures that one request makes; any other is moved into the range.
const (
	minImages = 1
	maxImages = 10
)

// Dialect is the image generation format.
type Dialect struct{}

var spec = format.Spec{
	Format:    catalogkv.Images,
	Policy:    policy,
	Content:   []string{"prompt"},
	UserParam: "user",
	ReadFunc:  read,
	CheckFunc: check,
	EditFunc:  edit,
}

// Format returns catalogkv.Images.
func (Dialect) Format() catalogkv.Format { return spec.Format }

// Policy returns the default parameter table.
func (Dialect) Policy() *format.Policy { return spec.Policy }

// Read reads a request body.
func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// read takes what the price depends on.
func read(r *format.Request) {
	r.Images = minImages
	if r.Value("n") != nil {
		n, ok := r.Integer("n")
		if !ok {
			r.Refuse(format.Invalid("n", "an integer"))
		}
		r.Images = min(max(n, minImages), maxImages)
	}
	r.Size, r.Quality = chosen(r.Label("size")), chosen(r.Label("quality"))
}

// chosen returns a choice, empty if it is left to the provider.
func chosen(value string) string {
	if value == "auto" {
		return ""
	}
	return value
}

// check holds the number of pictures to what the model allows. Drawings in svg are
// made by a second model: whatever a policy lets through, it has to have a price.
func check(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	if !rules.SellsSecond(price.SVG) {
		switch {
		case r.Text("output_format") == "svg":
			return format.Unsupported("output_format")
		case r.Value("svg") != nil:
			return format.Unsupported("svg")
		}
	}
	r.Images = number(r, p)
	return nil
}

// number returns how many pictures a request makes under a policy.
func number(r *format.Request, p *format.Policy) int64 {
	row := p.Row("n")
	switch row.Action {
	case format.Clamp:
		return min(max(row.Clamped(r.Images), minImages), maxImages)
	case format.Forward:
		return r.Images
	case format.Force:
		if n, ok := jsonspan.Int64([]byte(row.Value)); ok {
			return max(n, minImages)
		}
	case format.Reject, format.Drop, format.Replace:
	}
	return minImages
}

// edit sends the number of pictures that was reserved for, whatever the provider's own
// default is.
func edit(r *format.Request, e *format.Edit, t *format.Target) {
	switch t.Policy.Row("n").Action {
	case format.Clamp, format.Forward:
		e.Set("n", e.Number(number(r, t.Policy)))
	case format.Reject, format.Drop, format.Replace, format.Force:
	}
}
