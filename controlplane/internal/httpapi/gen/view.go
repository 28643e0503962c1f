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
	Receipt Receipt `json:"receipt"`
}
