/* How at most one writer holds an archive's lease: `Lease` in lease.py, on the stores of
   lease_store.py.

   Three writers take the lease, renew it, release it or die, and start again; between any two
   steps, each may be suspended for any time. The store is `OneFile`, or with NUMBERED
   `NumberedFiles`. With IN_TIME, nobody is suspended. Clocks are up to APART ticks apart; with
   AHEAD, only that of the first holder is wrong, by so many, and it takes the lease once.

   A tick is a third of a lease's duration, after which the lease is renewed. Times are relative:
   the present stays NOW, what lies ahead comes nearer, and what expired long ago has expired. */

#define WRITERS 3
#define LASTS 3		/* `SECONDS`, in ticks */
#define LEASES 4	/* the highest number of a file; the store takes no more */
#ifdef AHEAD
#define APART AHEAD
#endif
#ifndef APART
#define APART 0
#endif
#ifndef EARLIER
#define EARLIER 0	/* how many ticks too early a lease is taken over */
#endif
#define NOW LASTS

/* Who a file names, if not a writer. */
#define ABSENT 3
#define RELEASED 4

#ifdef NUMBERED
#define FILES (LEASES + 1)
#else
#define FILES 1
#endif
byte holder[FILES] = ABSENT, expires[FILES] = NOW;

/* What each writer knows: how far its clock is ahead; when it looked at it; whether it holds the
   lease, until when; how long it has yet to watch one. */
byte ahead[WRITERS], clock[WRITERS], until[WRITERS] = NOW, watches[WRITERS];
bool holds[WRITERS];

/* With IN_TIME: what has to happen before time may pass. */
bool is_busy[WRITERS], is_due[WRITERS];

/* The promise: no two may write. */
bool exclusive = true;
#define may_write(w) (holds[w] && NOW + ahead[w] < until[w])

#define own_expiry() (clock[me] + LASTS > NOW -> clock[me] + LASTS : NOW)

/* `may_take_over`. The look at the clock and the one at the lease are one step: a pause between
   them would only make the writer's own lease shorter. */
mtype = { OWN, FREE, RAN_OUT, HELD, WATCH };

inline judge(number) {
	clock[me] = NOW + ahead[me];
	if
	:: holder[number] == me && has_lease -> found_is = OWN
	:: holder[number] == ABSENT || holder[number] == RELEASED -> found_is = FREE
	:: else ->
		if
		:: clock[me] + EARLIER >= expires[number] -> found_is = RAN_OUT
		:: expires[number] - clock[me] > 2 * LASTS -> found_is = WATCH
		:: else -> found_is = HELD
		fi
	fi;
	printf("writer %d looks: %e\n", me, found_is)
}

inline say_written(who) {
	if
	:: who == me -> printf("writer %d writes a lease; %d ticks are left of it\n", me, own_expiry() - NOW)
	:: else -> printf("writer %d removes the lease\n", me)
	fi
}

/* --- the stores ------------------------------------------------------------------------------- */

#ifdef NUMBERED

inline list(last) {
	last = LEASES;
	do
	:: last > 0 && holder[last] == ABSENT -> last--
	:: else -> break
	od
}

/* `_newest`. Its listing and its read are one step: who reads an older file than the newest can't
   create the next one, or finds out at once. */
inline look() {
	d_step { is_busy[me] = true; list(found); judge(found) }
}

/* `_write`: an exclusive creation, then another listing, and the removal of what is older. */
inline write(who) {
	d_step {
		is_written = (found < LEASES -> holder[found + 1] == ABSENT : false);
		found++;
		if
		:: is_written -> holder[found] = who; expires[found] = own_expiry(); say_written(who)
		:: else
		fi }
	if
	:: is_written ->
		d_step {
#ifndef UNLISTED
			list(other);
			is_written = other == found;
#endif
			if
			:: is_written ->
				other = 1;
				do
				:: other < found ->
					holder[other] = ABSENT; expires[other] = NOW; other++
				:: else -> break
				od
			:: else -> holder[found] = ABSENT; expires[found] = NOW
			fi;
			other = 0
		}
	:: else
	fi
}

#define create() write(me)
#define replace() write(me)
#define remove() write(RELEASED)
#define watch() watched = found
#define is_unchanged (watched == found)
#define forget() found = 0; watched = 0

#else

/* Whether a writer has seen, and watches, this version of the file. */
bool is_seen[WRITERS], is_watched[WRITERS];

inline look() {
	d_step { is_busy[me] = true; judge(0); is_seen[me] = true }
}

inline write(condition, who) {
	d_step {
		is_written = condition;
		if
		:: is_written ->
			holder[0] = who;
			expires[0] = (who == ABSENT -> NOW : own_expiry());
			say_written(who);
			is_seen[0] = false; is_seen[1] = false; is_seen[2] = false;
			is_watched[0] = false; is_watched[1] = false; is_watched[2] = false
		:: else
		fi
	}
}

#define create() write(holder[0] == ABSENT, me)
#ifdef OVERWRITTEN
#define replace() write(true, me)
#else
#define replace() write(is_seen[me], me)
#endif
#ifdef REMOVED_UNSEEN
#define remove() write(true, ABSENT)
#else
#define remove() write(is_seen[me], ABSENT)
#endif
#define watch() is_watched[me] = true
#define is_unchanged is_watched[me]
#define forget() is_seen[me] = false; is_watched[me] = false

#endif

/* --- a writer --------------------------------------------------------------------------------- */

/* The end of an operation: it holds the lease, or not. */
inline rest(is_holder) {
	d_step {
		holds[me] = is_holder;
		has_lease = is_holder;
		until[me] = (is_holder -> own_expiry() : NOW);
		exclusive = may_write(0) + may_write(1) + may_write(2) <= 1;
		clock[me] = 0;
		is_busy[me] = false;
		is_due[me] = false;
		is_written = false;
		found_is = 0;
		forget();
		assert(exclusive)
	}
}

proctype Writer(byte me) {
	mtype found_is;
	byte found, watched, other;
	bool is_written, has_lease;

#ifdef AHEAD
	me == 0 || holds[0];
#endif
take:	/* `acquire` */
	look();
	if
	:: found_is == FREE -> create()
	:: found_is == RAN_OUT -> replace()
	:: found_is == HELD
	:: found_is == WATCH ->
		d_step { watch(); watches[me] = LASTS; is_busy[me] = false }
end_watch:	watches[me] == 0;
		look();
		if
		:: found_is == WATCH && is_unchanged -> replace()	/* NOT_RENEWED */
		:: else
		fi
	fi;
	if
	:: is_written -> rest(true)
	:: else -> rest(false); goto take
	fi;

	do
#ifdef IN_TIME
	:: is_due[me] ->
#else
	::
#endif
		look();		/* `renew` */
		if
		:: found_is == OWN && clock[me] < until[me] -> replace()
		:: else
		fi;
		if
		:: is_written -> rest(true)
		:: else -> rest(false); break
		fi
	:: d_step { holds[me] = false; until[me] = NOW; printf("writer %d has finished\n", me) }
		look();		/* `release` */
		if
		:: found_is == OWN -> remove()
		:: else
		fi;
		rest(false);
		break
	:: rest(false); break	/* killed */
	od;
#ifdef AHEAD
	me > 0;
#endif
	goto take
}

inline pass(time, least) {
	time = (time > least -> time - 1 : least)
}

active proctype Time() {
	byte each;
end:
	do
	:: d_step {
#ifdef IN_TIME
		!(is_busy[0] || is_busy[1] || is_busy[2] || is_due[0] || is_due[1] || is_due[2]) ->
#endif
		printf("a tick passes\n");
		each = 0;
		do
		:: each < WRITERS ->
			pass(clock[each], 0);
			pass(until[each], NOW);
			pass(watches[each], 0);
#ifdef IN_TIME
			is_due[each] = holds[each];
#endif
			each++
		:: else -> break
		od;
		each = 0;
		do
		:: each < FILES -> pass(expires[each], NOW); each++
		:: else -> break
		od;
		each = 0 }
	od
}

init {
	byte each;
	atomic {
#ifdef AHEAD
		ahead[0] = AHEAD;
#else
		select(each : 0 .. APART); ahead[0] = each;
		select(each : 0 .. APART); ahead[1] = each;
		select(each : 0 .. APART); ahead[2] = each;
#endif
		run Writer(0);
		run Writer(1);
		run Writer(2)
	}
}
