package gwctl

import (
	"modelgateway/controlplane/internal/gwctl/call"
	"modelgateway/shared/platform/apidoc"
)

const mediaFile = "application/octet-stream"

// fileArg is the argument of a command that sends a file as it is.
var fileArg = apidoc.Param{Name: "file"}

// takesFile reports whether the body is a file.
func (o *operation) takesFile() bool {
	return o.op.Body != nil && o.op.Body.Media[0].Type == mediaFile
}

// sendFile makes a file the body, packed, since tables become a tenth of their size.
func (o *operation) sendFile(r *call.Request, name string) error {
	text, err := o.tool.read(name)
	r.Body = call.Pack(text)
	r.Header.Set("Content-Type", mediaFile)
	return err
}
