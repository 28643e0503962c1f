package gwctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"modelgateway/shared/natsuser"
)

// natsPermissionsCommand prints the users of NATS with their permissions. It needs
// no server.
func (t *tool) natsPermissionsCommand() *cobra.Command {
	var proxies []string
	var next, operator bool
	format := "conf"
	render := map[string]func([]natsuser.User) string{"conf": natsuser.ServerConfig, "values": natsuser.ChartValues}
	cmd := &cobra.Command{
		Use:   "nats-permissions",
		Short: "Print the users of NATS with the permissions of both planes",
		Args:  cobra.NoArgs,
		Long: "Print the users that NATS needs, with the least permissions of each plane: as part of the configuration of a NATS\n" +
			"server, or as values of its Helm chart. The server reads the passwords from the variables named there.\n\n" +
			"Without --proxy, all proxies share the user dataplane. With it, each proxy has a user that can act under this\n" +
			"proxy's name only: a proxy that falls into wrong hands cannot speak for the others.\n\n" +
			"With --next, each user is printed a second time, with -next at the end of its name. During a change of passwords\n" +
			"the planes move from one user to the other, so that both passwords are valid at the same time.",
		Example: "  gwctl nats-permissions > planes.conf\n  gwctl nats-permissions --format values --proxy gateway-dataplane-0 " +
			"--proxy gateway-dataplane-1",
		RunE: func(*cobra.Command, []string) error {
			text, ok := render[format]
			if !ok {
				return usagef("--format %s: must be conf or values", format)
			}
			users := natsuser.Users(proxies...)
			if operator {
				users = append(users, natsuser.ForOperator())
			}
			if next {
				users = append(users, natsuser.Next(users)...)
			}
			fmt.Fprint(t.cfg.Out, text(users))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&proxies, "proxy", nil, "`name` of a proxy that gets a user of its own (repeatable)")
	cmd.Flags().
		BoolVar(&operator, "operator", false,
			"also print the user operator, which `gwctl keys revoke-direct` needs and which can do nothing else")
	cmd.Flags().BoolVar(&next, "next", false, "also print the users for a change of passwords")
	cmd.Flags().StringVar(&format, "format", format, "`format`: conf or values")
	t.complete(cmd, "format", []string{"conf", "values"})

	return cmd
}
