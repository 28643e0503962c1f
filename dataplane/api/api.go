// Package api holds the OpenAPI document of the public API. The ops listener
// serves it, and the end-to-end tests check the data plane against it.
package api

import _ "embed" // for Document

// Document is the OpenAPI 3.1 document, in YAML.
//
//go:embed openapi.yaml
var Document []byte
