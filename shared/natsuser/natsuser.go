// Package natsuser holds the permissions of both planes' users in NATS: no more
// than the planes need, so that a stolen password opens no more than it must.
//
// It renders them for operators, as configuration of a NATS server and as values
// of the NATS chart. The dev stack and the tests run with them.
package natsuser

import (
	"slices"

	"modelgateway/shared/subject"
)

// The names of the users.
const (
	ControlPlane = "controlplane"
	// DataPlane is the user that all proxies share, unless each has one of its own.
	DataPlane = "dataplane"
	// Operator is the user with which operators revoke keys while no control plane runs.
	Operator = "operator"
)

// User is a user of NATS.
type User struct {
	Name string
	// Publish and Subscribe are the subjects that the user may use, and no others.
	Publish, Subscribe []string
}

// Users returns the user of the control planes and those of the data plane: one
// for each of the proxies, or, without names, one for all of them.
func Users(proxies ...string) []User {
	users := []User{ForControlPlane()}
	if len(proxies) == 0 {
		return append(users, ForProxies())
	}
	for _, name := range proxies {
		users = append(users, ForProxy(name))
	}
	return users
}

// requests are the requests of proxies.
var requests = []string{
	subject.Register, subject.Heartbeat, subject.Close, subject.LeaseRequest, subject.Return,
	subject.LoadKey, subject.Balance, subject.VideoCreate, subject.VideoUpdate, subject.VideoGet,
}

const (
	catalog  = "KV_" + subject.CatalogBucket
	recovery = "KV_" + subject.RecoveryBucket
	poller   = subject.VideoPollStream + "." + subject.VideoPollConsumer
)

// NameOf returns the name of the user of one proxy.
func NameOf(proxy string) string { return DataPlane + "-" + proxy }

// Next returns the users under the names that they get while their passwords are
// exchanged: a user of NATS has one password, so the planes move from one user to
// another with the same permissions.
func Next(users []User) []User {
	next := slices.Clone(users)
	for i := range next {
		next[i].Name += "-next"
	}
	return next
}

// ForProxy returns the user of one proxy. It can act under the name of this proxy
// only, and reads no replies to others.
func ForProxy(proxy string) User { return dataPlane(NameOf(proxy), subject.Token(proxy)) }

// ForProxies returns the user that all proxies share. With its password, one proxy
// can act under the name of any other.
func ForProxies() User { return dataPlane(DataPlane, "*") }

// dataPlane returns a user for the proxies with a token in their subjects.
func dataPlane(name, token string) User {
	u := User{
		Name: name,
		Publish: []string{
			subject.UsagePrefix + token + ".*", subject.AnswerPrefix + "*." + token, subject.VideoJobAll,
			subject.Pulse + "." + token,
			// The stream of changes: publish beats and read single messages. A consumer could send what the proxy has
			// published to any subject of its choice.
			subject.FreshBeat + "." + token,
			"$JS.API.STREAM.INFO." + subject.ChangeStream, "$JS.API.STREAM.MSG.GET." + subject.ChangeStream,
			// The bucket of key records: read single entries at the server that leads it, for the same reason.
			"$JS.API.STREAM.MSG.GET." + subject.KeyStream,
			// The catalog: open the bucket and watch it with an own consumer.
			"$JS.API.STREAM.INFO." + catalog,
			"$JS.API.CONSUMER.CREATE." + catalog + ".>",
			"$JS.API.CONSUMER.INFO." + catalog + ".>",
			"$JS.API.CONSUMER.DELETE." + catalog + ".>",
			"$JS.FC." + catalog + ".>",
			// The work queue of video jobs: fetch one and acknowledge it.
			"$JS.API.CONSUMER.INFO." + poller,
			"$JS.API.CONSUMER.MSG.NEXT." + poller,
			"$JS.ACK." + poller + ".>",
		},
		Subscribe: []string{
			subject.ProxyInbox + "." + token + ".>",
			subject.KeyChange,
			subject.Reserved,
			subject.Describe,
			subject.Explain,
			subject.Check,
			subject.Tail,
			"mgw.session.*.recall",
			"mgw.session.*.settled",
			subject.ChangedAll,
		},
	}

	for _, request := range requests {
		u.Publish = append(u.Publish, request+"."+token)
	}

	slices.Sort(u.Publish)
	return u
}

// ForOperator returns the user with which operators revoke keys without a control
// plane. It can do nothing else.
func ForOperator() User {
	return User{
		Name: Operator,
		Publish: []string{
			"$JS.API.STREAM.INFO." + subject.ChangeStream, "$JS.API.STREAM.MSG.GET." + subject.ChangeStream,
			subject.ChangeDirect + "*", subject.FromAll(subject.FreshProbe),
		},
		Subscribe: []string{subject.OperatorInbox + ".>"},
	}
}

// ForControlPlane returns the user of the control planes. It may not delete any
// stream, nor publish under the name of a proxy.
func ForControlPlane() User {
	u := User{
		Name: ControlPlane,
		Publish: []string{
			subject.KeyChange,
			subject.Reserved,
			subject.Describe,
			subject.Explain,
			subject.Check,
			subject.Tail,
			"mgw.session.*.recall",
			"mgw.session.*.settled",
			subject.ProxyInbox + ".>",
			subject.VideoPollAll,
			subject.VideoJobAll,
			"$KV." + subject.CatalogBucket + ".>",
			"$KV." + subject.RecoveryBucket + ".>",
			subject.KeyPrefix + ">",
			subject.ChangeAll,
			subject.FromAll(subject.FreshProbe),
			InfoSubject,
			"$JS.API.INFO",
			"$JS.API.STREAM.PURGE." + subject.UsageStream,
			"$JS.API.CONSUMER.NAMES." + subject.UsageStream,
			"$JS.API.CONSUMER.MSG.NEXT." + subject.UsageStream + ".>",
			"$JS.API.CONSUMER.MSG.NEXT." + subject.VideoJobStream + ".>",
			"$JS.ACK." + subject.UsageStream + ".>",
			"$JS.FC." + catalog + ".>",
			"$JS.FC." + recovery + ".>",
		},
		Subscribe: []string{subject.ControlInbox + ".>", subject.AnswerPrefix + ">", subject.FromAll(subject.Pulse)},
	}

	for _, stream := range []string{subject.UsageStream, subject.VideoPollStream, subject.VideoJobStream, catalog, recovery} {
		for _, call := range []string{"STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.MSG.GET", "DIRECT.GET"} {
			u.Publish = append(u.Publish, "$JS.API."+call+"."+stream)
		}
		for _, call := range []string{"CONSUMER.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE"} {
			u.Publish = append(u.Publish, "$JS.API."+call+"."+stream+".>")
		}
	}

	for _, call := range []string{"STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.MSG.GET"} {
		u.Publish = append(u.Publish, "$JS.API."+call+"."+subject.ChangeStream, "$JS.API."+call+"."+subject.KeyStream)
	}

	// Keys of the buckets are read by their subject.
	u.Publish = append(u.Publish, "$JS.API.DIRECT.GET."+catalog+".>", "$JS.API.DIRECT.GET."+recovery+".>")
	for _, request := range requests {
		u.Subscribe = append(u.Subscribe, subject.FromAll(request))
	}

	slices.Sort(u.Publish)
	return u
}
