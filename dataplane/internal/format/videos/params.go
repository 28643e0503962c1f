package videos

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
	format.Param{Name: "seconds", Action: format.Forward, Types: format.String | format.Integer},
	format.Param{Name: "size", Action: format.Forward, Types: format.String},
	format.Param{
		Name:   "input_reference",
		Action: format.Forward,
		Types:  format.Object,
		Closed: true,
	},
	format.Param{Name: "input_reference.image_url", Action: format.Forward, Types: format.String},
	format.Param{Name: "input_reference.file_id", Action: format.Reject},
)
