package wire

import "modelgateway/shared/apikey"

// KeyEntry is an entry of the bucket of key records. It has no secrets: ids, pools
// and prices of an account, and the lookup hash, which proxies and the stream of
// changes have in plain text, too.
type KeyEntry struct {
	V    int         `json:"v"`
	Hash apikey.Hash `json:"hash"`
	// Epoch and Revision are the cluster epoch and the revision at which the record was read.
	Epoch    int64     `json:"epoch"`
	Revision int64     `json:"revision"`
	Record   KeyRecord `json:"record"`
}

// Valid reports whether the entry is one that a control plane has written for a
// hash. NATS sends its replies to any subject that a request names, so other texts
// may lie in the bucket.
func (e *KeyEntry) Valid(hash apikey.Hash) bool {
	return e.Hash == hash && e.Epoch > 0 && e.Revision > 0 && e.Record.KeyID != "" && e.Record.AccountID != ""
}

// KeyMark is the entry of the bucket of key records that says what it has: the
// record of every key in the cluster epoch, with every change up to the revision.
// It is written behind them.
type KeyMark struct {
	V        int   `json:"v"`
	Epoch    int64 `json:"epoch"`
	Revision int64 `json:"revision"`
}

// Valid reports whether a control plane has written the mark.
func (m *KeyMark) Valid() bool { return m.Epoch > 0 && m.Revision > 0 }
