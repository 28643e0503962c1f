// Package gen has the types and the server interface of the admin API. gen.go is generated from the API document. Written
// by hand are the code that all operations share, and the Go types of schemas that extend another schema: they embed its
// type, while the generator would copy its fields.
package gen

// KeyWithSecret is the schema IssuedKey.
type KeyWithSecret struct {
	Key
	Secret string `json:"secret"`
}

// TokenWithSecret is the schema IssuedToken.
type TokenWithSecret struct {
	Token
	Secret string `json:"secret"`
}

// UsageWithReceipt is the schema UsageDetail.
type UsageWithReceipt struct {
	UsageRecord
	Receipt     Receipt       `json:"receipt"`
	Corrections []Transaction `json:"corrections"`
	// Attempts are the routes that were tried or skipped.
	Attempts []RouteAttempt `json:"attempts"`
}
