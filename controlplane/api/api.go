// Package api holds the description of the admin API, from which the server's
// interface and the client are generated and which the server itself serves.
package api

//go:generate oapi-codegen -config client.yaml openapi.yaml
//go:generate oapi-codegen -config server.yaml openapi.yaml

import _ "embed" // for Document

// Document is the OpenAPI 3.1 document, in YAML.
//
//go:embed openapi.yaml
var Document []byte
