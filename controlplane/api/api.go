// Package api has the OpenAPI document of the admin API. The server interface and the client are generated from it, and
// the server serves it.
package api

//go:generate oapi-codegen -config client.yaml openapi.yaml
//go:generate oapi-codegen -config server.yaml openapi.yaml

import _ "embed" // for Document

// Document is the OpenAPI 3.1 document, in YAML.
//
//go:embed openapi.yaml
var Document []byte
