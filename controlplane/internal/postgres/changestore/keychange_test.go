package changestore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"modelgateway/controlplane/internal/postgres/changestore"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/shared/apikey"
	"modelgateway/shared/ident"
	"modelgateway/shared/wire"
)

// What is read from Postgres again is what was pushed at once, for a key and for an account.
func TestStoredChangeIsTheOneThatWasPushed(t *testing.T) {
	t.Parallel()
	hash := make([]byte, len(apikey.Hash{}))
	hash[0] = 1
	for name, h := range map[string][]byte{"a key": hash, "an account": nil} {
		row := sqlcgen.ChangesAfterRow{
			Revision:         7,
			PreviousRevision: 6,
			Kind:             string(wire.KeyRevoked),
			AccountID:        ident.UUID{1},
			LookupHash:       h,
		}
		pushed := changestore.NewKeyChange(7, 6, wire.KeyRevoked, row.AccountID, h)
		if diff := cmp.Diff(pushed, changestore.KeyChangeOf(row)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if pushed.Account != ident.Account.Format(row.AccountID) || (pushed.KeyHash == apikey.Hash{}) != (h == nil) {
			t.Errorf("%s: got %+v", name, pushed)
		}
	}
}
