"""A few messages of each venue, of every kind that fills a table."""

from __future__ import annotations

_USDM_DEPTH = (
    '{"e":"depthUpdate","E":1723161256501,"T":1723161256493,"s":"BTCUSDT","U":%d,"u":%d,"pu":%d,'
    '"b":[["61800.20","2.909"]],"a":[["61801","0"],["61802","1"]]}'
)
_MESSAGES = {
    "binance-spot": (
        '{"e":"trade","E":20,"s":"BTCUSDT","t":9,"p":"0.10000000","q":"3","T":19,"m":true,"M":true}',
        '{"e":"aggTrade","E":20,"s":"BTCUSDT","a":4,"p":"0.10000000","q":"3","f":9,"l":9,"T":19,"m":true,"M":true}',
        '{"stream":"x","data":{"e":"depthUpdate","E":20,"s":"X","U":5,"u":7,"b":[["1","2"]],"a":[]}}',
        '{"u":400900217,"s":"BNBUSDT","b":"25.35190000","B":"31.21","a":"25.3652","A":"40.66"}',
    ),
    "binance-usdm": (
        '{"e":"trade","E":20,"T":19,"s":"BTCUSDT","t":9,"p":"61800.20","q":"0.5","X":"MARKET","m":false}',
        '{"e":"aggTrade","E":20,"a":4,"s":"BTCUSDT","p":"61800.20","q":"0.5","f":9,"l":9,"T":19,"m":false}',
        _USDM_DEPTH % (5, 7, 4),
        _USDM_DEPTH % (8, 9, 7),
        '{"stream":"x","data":%s}' % (_USDM_DEPTH % (10, 12, 9)),
        '{"e":"bookTicker","u":4,"s":"BTCUSDT","b":"25.3","B":"31","a":"25.4","A":"40","T":19,"E":20}',
    ),
    "bitstamp": (
        '{"data":{"id":21,"timestamp":"1641343721","amount":0.6,"amount_str":"0.60000000","price":3800.75,'
        '"price_str":"3800.75","type":1,"microtimestamp":"1641343721243000"},"channel":"live_trades_ethusd",'
        '"event":"trade"}',
        '{"data":{"timestamp":"1","microtimestamp":"1641343721243000","bids":[["1","2"]],"asks":[]},'
        '"channel":"diff_order_book_ethusd","event":"data"}',
    ),
    "coinbase": (
        '{"type":"match","trade_id":8,"maker_order_id":"f","taker_order_id":"d","side":"sell","size":"335",'
        '"price":"0.5762","product_id":"SKL-GBP","sequence":2,"time":"2021-04-17T16:43:37.270697Z"}',
        '{"type":"snapshot","product_id":"A-B","asks":[["2","3"]],"bids":[["1","4"]]}',
        '{"type":"l2update","product_id":"A-B","changes":[["sell","2","0.0"],["buy","1","5"]],'
        '"time":"1970-01-01T00:00:01.5Z"}',
        '{"type":"ticker","sequence":6,"product_id":"A-B","price":"1","best_bid":"1","best_ask":"2","side":"buy",'
        '"time":"1970-01-01T00:00:01Z","trade_id":8,"last_size":"335"}',
    ),
    "hyperliquid": (
        '{"channel":"trades","data":[{"coin":"BTC","side":"A","px":"105056.0","sz":"0.1","time":15,"hash":"0",'
        '"tid":9}]}',
        '{"channel":"l2Book","data":{"coin":"BTC","levels":[[{"n":5,"px":"2","sz":"3"}],'
        '[{"n":1,"px":"4","sz":"1"}]],"time":15}}',
        '{"channel":"bbo","data":{"coin":"BTC","time":15,"bbo":[{"n":5,"px":"2","sz":"3"},null]}}',
    ),
    "kraken": (
        '[1920,{"b":[["0.5","0.0","1.5","r"],["0.4","1","1.25"]],"c":"4294967295"},"book-10","A/B"]',
        '[1,{"as":[["3","1","2.0"]],"bs":[["2","1","1.0"]]},"book-10","A/B"]',
        '[0,[["5541.2","0.1","1534614057.321597","s","l",""],["1","2","3.5","b","m",""]],"trade","XBT/USD"]',
        '[0,["1.5","1.6","2.25","7","8"],"spread","XBT/USD"]',
        '{"channel":"book","type":"update","data":[{"symbol":"A/B","bids":[{"price":0.1,"qty":1e-8}],"asks":'
        '[{"price":12345678901234567.123456789,"qty":0}],"checksum":7,"timestamp":"1970-01-01T00:00:01.5Z"}]}',
        '{"channel":"trade","type":"update","data":[{"symbol":"A/B","side":"sell","price":1.5,"qty":2,'
        '"ord_type":"limit","trade_id":41,"timestamp":"1970-01-01T00:00:01Z"}]}',
        '{"channel":"ticker","type":"update","data":[{"symbol":"A/B","bid":1.5,"bid_qty":2,"ask":1.6,"ask_qty":3}]}',
    ),
    "okx": (
        '{"arg":{"channel":"trades","instId":"X"},"data":[{"instId":"X","tradeId":"12","px":"1.5","sz":"2",'
        '"side":"buy","ts":"1500","count":"3"}]}',
        '{"arg":{"channel":"books","instId":"BTC-USDT"},"action":"snapshot","data":[{"asks":[["3","1","0","1"]],'
        '"bids":[["2","0","0","0"]],"ts":"1500","seqId":9,"prevSeqId":-1,"checksum":-67}]}',
        '{"arg":{"channel":"bbo-tbt","instId":"X"},"data":[{"asks":[],"bids":[["2","7","0","1"]],"ts":"5","seqId":8}]}',
    ),
}
VENUES = tuple(_MESSAGES)


def of(venue: str) -> list[bytes]:
    """Returns the messages that the venue's decoder reads."""
    return [message.encode() for message in _MESSAGES[venue]]
