package natsuser

import (
	"fmt"
	"strings"
)

// PasswordVariable returns the name of the variable with a user's password in the
// rendered configuration, such as DATAPLANE_NATS_PASSWORD.
func PasswordVariable(user string) string {
	name := strings.Map(func(r rune) rune {
		if (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') {
			return r
		}
		return '_'
	}, strings.ToUpper(user))
	return name + "_NATS_PASSWORD"
}

// ServerConfig returns the users as part of the configuration file of a NATS
// server. The passwords are variables, which the server reads from its environment
// or from the rest of the file.
func ServerConfig(users []User) string {
	var b strings.Builder
	b.WriteString("authorization {\n  users = [\n")
	for _, u := range users {
		fmt.Fprintf(&b, "    {\n      user: %q\n      password: $%s\n      permissions {\n", u.Name, PasswordVariable(u.Name))
		writeList(&b, "        publish { allow: [\n", u.Publish, "          %q\n", "        ] }\n")
		writeList(&b, "        subscribe { allow: [\n", u.Subscribe, "          %q\n", "        ] }\n")
		b.WriteString("      }\n    }\n")
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}

// ChartValues returns the users as values of the NATS chart (nats-io/k8s), which
// reads the passwords from the environment of the server.
func ChartValues(users []User) string {
	var b strings.Builder
	b.WriteString("config:\n  merge:\n    authorization:\n      users:\n")
	for _, u := range users {
		fmt.Fprintf(&b, "        - user: %q\n          password: << $%s >>\n          permissions:\n", u.Name, PasswordVariable(u.Name))
		writeList(&b, "            publish:\n              allow:\n", u.Publish, "                - %q\n", "")
		writeList(&b, "            subscribe:\n              allow:\n", u.Subscribe, "                - %q\n", "")
	}
	return b.String()
}

func writeList(b *strings.Builder, before string, words []string, format, after string) {
	b.WriteString(before)
	for _, word := range words {
		fmt.Fprintf(b, format, word)
	}
	b.WriteString(after)
}
