// Package images implements the image generation format.
//
// It owns the format's parameter table, the number of requested and delivered images, and the sizes and qualities on
// which their price depends. Images are not streamed.
package images

import (
	"modelgateway/dataplane/internal/format"
	"modelgateway/dataplane/internal/jsonspan"
	"modelgateway/shared/apierr"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
)

const (
	// The range of images per request. Other numbers are moved into it.
	minImages = 1
	maxImages = 10
	// The range of frames of an animation. Each is priced as an image.
	minFrames = 2
	maxFrames = 16
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

func (Dialect) Format() catalogkv.Format { return spec.Format }

func (Dialect) Policy() *format.Policy { return spec.Policy }

func (Dialect) Read(obj *jsonspan.Object) (*format.Request, *apierr.Error) { return spec.Read(obj) }

// read reads the parameters on which the price depends.
func read(r *format.Request) {
	r.Images = minImages
	if r.Value("n") != nil {
		n, ok := r.Integer("n")
		if !ok {
			r.Refuse(format.Invalid("n", "an integer"))
		}
		r.Images = min(max(n, minImages), maxImages)
	}
	r.Size, r.Quality = explicit(r.Label("size")), explicit(r.Label("quality"))
	if frames, ok := r.Integer("frame_count"); ok {
		r.Frames = min(max(frames, minFrames), maxFrames)
	}
}

// explicit returns the value of a parameter, empty if it leaves the choice to the provider.
func explicit(value string) string {
	if price.Word(value) == "auto" {
		return ""
	}
	return value
}

// check moves the number of images into the bounds of the policy. SVG drawings are made by a secondary model, which must
// have a price whatever the policy allows.
func check(r *format.Request, p *format.Policy, rules format.Rules) *apierr.Error {
	if !rules.HasSecondaryPrice(price.SVG) {
		switch {
		case price.Word(r.Text("output_format")) == "svg":
			return format.UnsupportedValue("output_format", r.Value("output_format"))
		case r.Value("svg") != nil:
			return format.Unsupported("svg")
		}
	}
	r.Images = imageCount(r, p)

	switch p.Row("frame_count").Action {
	case format.Clamp, format.Forward:
		if r.Frames == 0 && price.Word(r.Text("output_format")) == "gif" {
			r.Frames = minFrames
		}
	case format.Reject, format.Drop, format.Replace, format.Force:
		r.Frames = 1
	}

	return nil
}

// imageCount returns how many images a request makes under a policy.
func imageCount(r *format.Request, p *format.Policy) int64 {
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

// edit sets the number of images, and that of the frames of an animation, to that of the reservation, whatever the
// provider's default is.
func edit(r *format.Request, e *format.Edit, t *format.Target) {
	switch t.Policy.Row("n").Action {
	case format.Clamp, format.Forward:
		e.Set("n", e.Number(imageCount(r, t.Policy)))
	case format.Reject, format.Drop, format.Replace, format.Force:
	}

	if r.Frames > 1 && r.Value("frame_count") == nil {
		e.Set("frame_count", e.Number(r.Frames))
	}
}
