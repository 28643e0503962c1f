package gwctl

import (
	"errors"

	"github.com/spf13/cobra"

	"modelgateway/controlplane/internal/gwctl/revokedirect"
)

// addRevokeDirect adds `keys revoke-direct`.
func (t *tool) addRevokeDirect() {
	keys := find(t.root, "keys")
	if keys == nil {
		return // the document of a test
	}
	cmd := revokedirect.Command(t.cfg.In, t.cfg.Out, t.cfg.Err, t.cfg.RevokeFunc)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if errors.Is(err, revokedirect.ErrUsage) {
			return &usageError{err}
		}
		return err
	}
	keys.AddCommand(cmd)
}
