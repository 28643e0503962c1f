package allocator

import "modelgateway/shared/wire"

// turns is the queue of a Batcher. Accounts take turns, and within an account its
// sessions do, so that a message waits for at most one message of each other
// account, however many of them have come before it. The messages of one session
// about one account keep their order.
type turns struct {
	accounts map[string]*accountTurn
	// order has the accounts with messages; the first one is next.
	order  []*accountTurn
	length int
}

// accountTurn has the messages of one account.
type accountTurn struct {
	account  string
	sessions map[wire.SessionID]*sessionTurn
	order    []*sessionTurn
	length   int
}

// sessionTurn has the messages of one session about one account, in their order.
type sessionTurn struct {
	session  wire.SessionID
	messages []*message
}

// add queues a message, unless its account has limit messages.
func (t *turns) add(m *message, limit int) bool {
	session, name := m.from()
	a := t.accounts[name]
	if a == nil {
		a = &accountTurn{account: name, sessions: map[wire.SessionID]*sessionTurn{}}
		t.accounts[name] = a
		t.order = append(t.order, a)
	}

	if a.length >= limit {
		return false
	}

	s := a.sessions[session]
	if s == nil {
		s = &sessionTurn{session: session}
		a.sessions[session] = s
		a.order = append(a.order, s)
	}

	s.messages = append(s.messages, m)
	a.length++
	t.length++
	return true
}

// take removes and returns up to n messages, in the order of their turns.
func (t *turns) take(n int) []*message {
	taken := make([]*message, 0, min(n, t.length))
	for len(taken) < n && t.length > 0 {
		a := t.order[0]
		t.order = t.order[1:]
		taken = append(taken, a.take())
		t.length--
		if a.length > 0 {
			t.order = append(t.order, a)
		} else {
			delete(t.accounts, a.account)
		}
	}
	return taken
}

// take removes and returns the next message of an account that has one.
func (a *accountTurn) take() *message {
	s := a.order[0]
	a.order = a.order[1:]
	m := s.messages[0]
	s.messages = s.messages[1:]
	a.length--
	if len(s.messages) > 0 {
		a.order = append(a.order, s)
	} else {
		delete(a.sessions, s.session)
	}
	return m
}
