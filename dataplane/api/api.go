// Package api holds the description of the public API, which the ops listener
// serves and the end-to-end tests hold the data plane to.
package api

import _ "embed" // for Document

// Document is the OpenAPI 3.1 document, in YAML.
//
//go:embed openapi.yaml
var Document []byte
