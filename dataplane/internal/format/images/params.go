package images

import "modelgateway/dataplane/internal/format"

// policy is the default parameter table.
var policy = format.NewPolicy(
	format.Param{Name: "model", Action: format.Replace, Types: format.String},
	format.Param{
		Name:     "prompt",
		Action:   format.Forward,
		Types:    format.String,
		Required: true,
	},

	// Parameters on which the price depends.
	format.Param{
		Name:   "n",
		Action: format.Clamp,
		Types:  format.Integer,
		Min:    minImages,
		Max:    maxImages,
	},
	format.Param{Name: "quality", Action: format.Forward, Types: format.String},
	format.Param{Name: "size", Action: format.Forward, Types: format.String},
	format.Param{
		Name:   "frame_count",
		Action: format.Clamp,
		Types:  format.Integer,
		Min:    minFrames,
		Max:    maxFrames,
	},

	// Appearance and encoding of the image. SVG drawings are made by a secondary model.
	format.Param{Name: "background", Action: format.Forward},
	format.Param{Name: "complexity", Action: format.Forward},
	format.Param{Name: "frame_duration_ms", Action: format.Forward},
	format.Param{Name: "output_compression", Action: format.Forward},
	format.Param{
		Name:   "output_format",
		Action: format.Forward,
		Types:  format.String,
		Deny:   []string{`"svg"`},
	},
	format.Param{Name: "response_format", Action: format.Forward},
	format.Param{Name: "style", Action: format.Forward},
	format.Param{Name: "svg", Action: format.Reject},
	format.Param{Name: "moderation", Action: format.Reject, Allow: []string{`"auto"`}},

	// Images are not streamed.
	format.Param{Name: "stream", Action: format.Reject, Allow: []string{`false`}},
	format.Param{Name: "partial_images", Action: format.Reject, Allow: []string{`0`}},

	// Identity of the user.
	format.Param{Name: "safety_identifier", Action: format.Replace, Types: format.String},
	format.Param{Name: "user", Action: format.Replace, Types: format.String},
)
