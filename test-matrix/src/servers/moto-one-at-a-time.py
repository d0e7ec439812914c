"""moto_server with one request at a time, and its arguments.

moto checks If-None-Match and If-Match and writes in separate steps, on a thread for each request: of 32 creators of one
object, two were told that they had made it (5.2.5, once in a few hundred races). It is here for what S3 answers, and that
it can be asked for only as one register.
"""

import threading

from moto import server

run = server.run_simple
turn = threading.Lock()


def run_one_at_a_time(host, port, app, **options):
    def one_at_a_time(environ, start_response):
        with turn:
            return list(app(environ, start_response))

    run(host, port, one_at_a_time, **options)


server.run_simple = run_one_at_a_time
server.main()
