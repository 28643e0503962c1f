// Package gen holds the types and the server interface that are generated from
// the API document. Only this file is written by hand: the types that a schema
// made of another one has in Go, which embed it where the generator would copy
// its fields.
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
}
